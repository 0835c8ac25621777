#include "reports/render.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "reports/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"

namespace assay::reports {
namespace {

Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string beside = fmt::format("{}.{}.tmp", path, getpid());
  const auto fail = [&](int code) {
    unlink(beside.c_str());
    return Error{fmt::format("cannot write {}: {}", path, std::strerror(code)),
                 ErrorKind::kEnvironment};
  };
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return fail(errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int code = count < 0 ? errno : ENOSPC;
      close(fd);
      return fail(code);
    }
    done += static_cast<size_t>(count);
  }
  if (close(fd) != 0) return fail(errno);
  if (std::rename(beside.c_str(), path.c_str()) != 0) return fail(errno);
  return Ok();
}

}  // namespace

Status RenderAll(const RunRecord& record, const std::string& dir) {
  struct File {
    const char* name;
    std::string (*render)(const RunRecord&);
  };
  for (const File& file : {File{"report.html", RenderHtml}, File{"report.md", RenderMarkdown},
                           File{"junit.xml", RenderJUnit}}) {
    const Status status = WriteWhole(dir + "/" + file.name, file.render(record));
    if (!status.ok()) return status;
  }
  return Ok();
}

}  // namespace assay::reports
