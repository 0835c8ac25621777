// Writes the synthetic run and its reports, to be looked at: example DIR (a new or empty folder).
#include <cstdio>

#include "reports/render.h"
#include "reports/synthetic_run.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: example DIR\n");
    return 2;
  }
  assay::RunRecord record = assay::reports::SyntheticRun();
  record.cells.push_back(assay::reports::FailingModel());
  record.summary->totals = record.Count();
  record.summary->totals.registered = record.summary->totals.collected;
  auto writer = assay::ResultsWriter::Create(argv[1], record.header);
  if (!writer.ok()) {
    std::fprintf(stderr, "%s\n", writer.error().message.c_str());
    return 2;
  }
  assay::Status status = assay::Ok();
  for (const assay::CellResult& cell : record.cells) {
    if (status.ok()) status = writer->Append(cell);
  }
  if (status.ok()) status = writer->Finish(record.summary->totals, record.summary->seconds);
  if (status.ok()) status = assay::reports::RenderAll(record, argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 1;
}
