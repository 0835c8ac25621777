#include "reports/render.h"

#include "harness/store/files.h"
#include "reports/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"

namespace assay::reports {

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
