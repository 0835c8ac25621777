// speed DIR [THREADS]: how fast an audit reads files that are in the page cache, beside loops that
// only read and add them up. All in one run, taking turns, the best of each.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "harness/audit/audit.h"
#include "harness/audit/text.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kBuffer = 256 << 10;
constexpr size_t kPiece = 16 << 20;

struct Piece {
  int descriptor;
  size_t offset, bytes;
};

uint64_t Sum(const char* bytes, size_t size) {
  uint64_t sums[4] = {};
  for (size_t i = 0; i + sizeof sums <= size; i += sizeof sums) {
    uint64_t words[4];
    std::memcpy(words, bytes + i, sizeof words);
    for (int j = 0; j < 4; ++j) sums[j] += words[j];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

uint64_t SumRead(const Piece& piece, char* buffer) {
  uint64_t sum = 0;
  for (size_t at = 0; at < piece.bytes; at += kBuffer) {
    const size_t size = std::min(kBuffer, piece.bytes - at);
    const ssize_t got =
        pread(piece.descriptor, buffer, size, static_cast<off_t>(piece.offset + at));
    if (got > 0) sum += Sum(buffer, static_cast<size_t>(got));
  }
  return sum;
}

uint64_t SumMapped(const Piece& piece, char*) {
  void* map = mmap(nullptr, piece.bytes, PROT_READ, MAP_SHARED, piece.descriptor,
                   static_cast<off_t>(piece.offset));
  if (map == MAP_FAILED) return 0;
  madvise(map, piece.bytes, MADV_SEQUENTIAL);
  const uint64_t sum = Sum(static_cast<const char*>(map), piece.bytes);
  munmap(map, piece.bytes);
  return sum;
}

double Seconds(const std::vector<Piece>& pieces, int threads,
               uint64_t (*sum)(const Piece&, char*)) {
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> total{0};
  const auto start = Clock::now();
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      std::vector<char> buffer(kBuffer);
      for (size_t piece = next++; piece < pieces.size(); piece = next++) {
        total += sum(pieces[piece], buffer.data());
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<Piece> PiecesOf(const std::string& folder, size_t* bytes) {
  std::vector<Piece> pieces;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const int descriptor = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) continue;
    const auto size = static_cast<size_t>(entry.file_size());
    for (size_t at = 0; at < size; at += kPiece) {
      pieces.push_back({descriptor, at, std::min(kPiece, size - at)});
    }
    *bytes += size;
  }
  return pieces;
}

// Of the process: anonymous memory at its most, in KiB.
long PeakMemory() {
  std::FILE* status = std::fopen("/proc/self/status", "r");
  if (status == nullptr) return 0;
  char line[256];
  long peak = 0;
  while (std::fgets(line, sizeof line, status) != nullptr) {
    if (std::strncmp(line, "VmHWM:", 6) == 0) peak = std::strtol(line + 6, nullptr, 10);
  }
  std::fclose(status);
  return peak;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 2;
  if (argc < 2 || argc > 3 ||
      (argc == 3 &&
       std::from_chars(argv[2], argv[2] + std::strlen(argv[2]), threads).ec != std::errc())) {
    std::fputs("usage: speed DIR [THREADS (2)]\n", stderr);
    return 2;
  }
  size_t bytes = 0;
  const std::vector<Piece> pieces = PiecesOf(argv[1], &bytes);
  assay::audit::AuditOptions options;
  options.threads = threads;
  double read = 1e9, mapped = 1e9, audited = 1e9, whole = 1e9;
  constexpr int kRounds = 12;
  long peak = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    const auto report = assay::audit::Audit(argv[1], options);
    whole = std::min(whole, std::chrono::duration<double>(Clock::now() - start).count());
    if (!report) {
      std::fputs((report.error().message + "\n").c_str(), stderr);
      return 2;
    }
    audited = std::min(audited, report->speed.seconds);
    // Before the mapped loop, whose pages are the file's and not ours.
    if (round == 0) peak = PeakMemory();
    read = std::min(read, Seconds(pieces, threads, SumRead));
    mapped = std::min(mapped, Seconds(pieces, threads, SumMapped));
  }
  const auto rate = [&](double seconds) {
    return assay::audit::GigabytesPerSecond(static_cast<int64_t>(bytes), seconds);
  };
  const double reference = std::max(rate(read), rate(mapped));
  std::puts(fmt::format("{:.2f} GB, {} threads, best of {}\n"
                        "pread and sum  {:6.2f} GB/s\nmmap and sum   {:6.2f} GB/s\n"
                        "audit's pass   {:6.2f} GB/s, {:.0f} % of the faster\n"
                        "audit as a whole {:.2f} s, {:.2f} GB/s; peak memory {:.1f} MiB",
                        static_cast<double>(bytes) / 1e9, threads, kRounds, rate(read),
                        rate(mapped), rate(audited), 100 * rate(audited) / reference, whole,
                        rate(whole), static_cast<double>(peak) / 1024)
                .c_str());
  return 0;
}
