#include "harness/abi/transfer.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>

namespace assay::abi {
namespace {

constexpr uint32_t kMagic = 0x41535259;
// Names, messages and describe() are far below this.
constexpr uint64_t kMetaLimit = uint64_t{16} << 20;

struct Head {
  uint32_t magic = kMagic;
  uint32_t type = 0;
  uint64_t meta_bytes = 0;
  uint64_t data_bytes = 0;
  uint64_t checksum = 0;
};

uint64_t Checksum(const Head& head, std::span<const std::byte> meta,
                  std::span<const std::byte> data) {
  const uint64_t seed = XXH3_64bits_withSeed(meta.data(), meta.size(), head.type);
  return XXH3_64bits_withSeed(data.data(), data.size(), seed);
}

bool ReadAt(int fd, int64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = pread(fd, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return true;
}

// Length of the well-formed UTF-8 sequence that begins here; 0: none does.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xc0) == 0x80; };
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xc2 && byte(0) <= 0xdf) return continues(1) ? 2 : 0;
  if ((byte(0) & 0xf0) == 0xe0) {
    if (!continues(1) || !continues(2)) return 0;
    const bool overlong = byte(0) == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = byte(0) == 0xed && byte(1) >= 0xa0;
    return overlong || surrogate ? 0 : 3;
  }
  if (byte(0) >= 0xf0 && byte(0) <= 0xf4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    const bool overlong = byte(0) == 0xf0 && byte(1) < 0x90;
    const bool beyond = byte(0) == 0xf4 && byte(1) >= 0x90;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

}  // namespace

int64_t MetaReader::Number() {
  int64_t number = 0;
  ok_ = ok_ && left_.size() >= sizeof number;
  if (!ok_) return 0;
  std::memcpy(&number, left_.data(), sizeof number);
  left_ = left_.subspan(sizeof number);
  return number;
}

std::string MetaReader::Text() {
  const int64_t length = Number();
  ok_ = ok_ && length >= 0 && static_cast<uint64_t>(length) <= left_.size();
  if (!ok_) return "";
  std::string text(reinterpret_cast<const char*>(left_.data()), static_cast<size_t>(length));
  left_ = left_.subspan(static_cast<size_t>(length));
  return text;
}

bool RecordWriter::WriteAt(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return true;
}

bool RecordWriter::Write(RecordType type, std::span<const std::byte> meta,
                         std::span<const std::byte> data, RecordPlace* place) {
  const uint64_t used = static_cast<uint64_t>(end_);
  const uint64_t room = limit_bytes_ > used ? limit_bytes_ - used : 0;
  if (meta.size() > kMetaLimit) return false;
  // The end must always fit, or a full file would look like a crash.
  const bool essential = type == RecordType::kEnd || type == RecordType::kFault;
  if (!essential && (data.size() > room || meta.size() + sizeof(Head) > room - data.size())) {
    return false;
  }
  Head head;
  head.type = static_cast<uint32_t>(type);
  head.meta_bytes = meta.size();
  head.data_bytes = data.size();
  head.checksum = Checksum(head, meta, data);
  const int64_t meta_at = end_ + static_cast<int64_t>(sizeof head);
  const int64_t data_at = meta_at + static_cast<int64_t>(meta.size());
  // The head comes last: until it is there the record does not exist.
  if (!WriteAt(data_at, data) || !WriteAt(meta_at, meta) ||
      !WriteAt(end_, std::as_bytes(std::span(&head, 1)))) {
    // Leave nothing that a later, shorter record would not cover.
    [[maybe_unused]] const int ignored = ftruncate(fd_, end_);
    return false;
  }
  if (place != nullptr) *place = {data_at, data.size()};
  end_ = data_at + static_cast<int64_t>(data.size());
  return true;
}

bool RecordWriter::Read(int64_t offset, std::span<std::byte> out) const {
  return ReadAt(fd_, offset, out);
}

int64_t RecordWriter::FirstDifference(RecordPlace place, std::span<const std::byte> data) const {
  std::array<std::byte, 1 << 16> chunk;
  const uint64_t common = std::min<uint64_t>(place.bytes, data.size());
  for (uint64_t at = 0; at < common;) {
    const size_t length = std::min<uint64_t>(chunk.size(), common - at);
    const std::span<std::byte> part(chunk.data(), length);
    if (!Read(place.offset + static_cast<int64_t>(at), part)) return static_cast<int64_t>(at);
    const auto [here, there] = std::mismatch(part.begin(), part.end(), data.begin() + at);
    if (here != part.end()) return static_cast<int64_t>(at) + (here - part.begin());
    at += length;
  }
  return place.bytes == data.size() ? -1 : static_cast<int64_t>(common);
}

RecordReader::RecordReader(int fd) : fd_(fd) {
  struct stat info {};
  if (fstat(fd, &info) == 0) size_ = info.st_size;
}

Result<std::optional<Record>> RecordReader::Next() {
  const auto damaged = [&](std::string_view what) {
    return Error{fmt::format("the transfer from the child is damaged at byte {}: {}", at_, what),
                 ErrorKind::kEnvironment};
  };
  const int64_t left = size_ - at_;
  if (left == 0 || ended_) return std::optional<Record>();
  Head head;
  if (left < static_cast<int64_t>(sizeof head)) return damaged("a record ends too early");
  if (!ReadAt(fd_, at_, std::as_writable_bytes(std::span(&head, 1)))) return damaged("unreadable");
  // A child killed while it wrote a record leaves a hole where its head would be.
  if (head.magic == 0 && head.type == 0 && head.checksum == 0) return std::optional<Record>();
  if (head.magic != kMagic) return damaged("this is no record");
  const auto room = static_cast<uint64_t>(left) - sizeof head;
  if (head.meta_bytes > kMetaLimit || head.meta_bytes > room ||
      head.data_bytes > room - head.meta_bytes) {
    return damaged("a record is longer than the file");
  }
  Record record;
  record.type = static_cast<RecordType>(head.type);
  record.meta.resize(head.meta_bytes);
  record.data.resize(head.data_bytes);
  const int64_t meta_at = at_ + static_cast<int64_t>(sizeof head);
  const int64_t data_at = meta_at + static_cast<int64_t>(head.meta_bytes);
  if (!ReadAt(fd_, meta_at, record.meta) || !ReadAt(fd_, data_at, record.data)) {
    return damaged("unreadable");
  }
  if (Checksum(head, record.meta, record.data) != head.checksum) {
    return damaged("a checksum is wrong");
  }
  at_ = data_at + static_cast<int64_t>(head.data_bytes);
  ended_ = record.type == RecordType::kEnd;
  return std::optional<Record>(std::move(record));
}

std::string CleanText(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = SequenceLength(text.substr(at));
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    if (length == 0 || control) {
      clean += '?';
      ++at;
      continue;
    }
    clean.append(text.substr(at, length));
    at += length;
  }
  return clean;
}

std::string CleanLine(std::string_view text) {
  std::string clean = CleanText(text);
  std::replace(clean.begin(), clean.end(), '\n', ' ');
  std::replace(clean.begin(), clean.end(), '\t', ' ');
  return clean;
}

}  // namespace assay::abi
