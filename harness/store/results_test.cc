#include "harness/store/results.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/store/random_cell.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

class Results : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/resultsXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    dir_ = root_ + "/out";
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string File() const { return dir_ + "/results.jsonl"; }
  std::string Contents() const {
    std::ifstream in(File(), std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void SetContents(const std::string& text) const {
    fs::create_directories(dir_);
    std::ofstream(File(), std::ios::binary | std::ios::trunc) << text;
  }
  static RunHeader MakeHeader() {
    RunHeader header;
    header.run_id = "run-1";
    header.revision = "1a2b3c";
    header.selection = "tp=2";
    header.machine_json = R"({"cpu":"X"})";
    return header;
  }
  // Header, `count` cells, and a summary if asked for.
  std::string MakeRun(int count, bool finish) {
    CellMaker maker(3);
    std::string text = ToJson(header_) + "\n";
    Totals totals;
    for (int i = 0; i < count; ++i) {
      const CellResult cell = maker.Make();
      totals.Add(cell.verdict);
      text += ToJson(cell) + "\n";
    }
    totals.registered = totals.collected;
    return finish ? text + SummaryJson(totals, 2) + "\n" : text;
  }

  std::string root_, dir_;
  RunHeader header_ = MakeHeader();
};

TEST_F(Results, WritesARunThatReadsBack) {
  Result<ResultsWriter> writer = ResultsWriter::Create(dir_, header_);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  CellMaker maker(3);
  Totals totals;
  for (int i = 0; i < 20; ++i) {
    const CellResult cell = maker.Make();
    totals.Add(cell.verdict);
    ASSERT_TRUE(writer->Append(cell).ok());
  }
  totals.registered = 20;
  ASSERT_TRUE(writer->Finish(totals, 2).ok());
  EXPECT_EQ(Contents(), MakeRun(20, true));

  const Result<RunRecord> record = ReadResults(dir_);
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_TRUE(record->finished());
  EXPECT_EQ(record->torn, "");
  EXPECT_EQ(record->cells.size(), 20u);
  EXPECT_EQ(record->Count(), totals);
  EXPECT_EQ(record->header.run_id, "run-1");
  EXPECT_TRUE(ReadResults(File()).ok());  // the file's own path will do
}

TEST_F(Results, TakesOnlyANewOrEmptyFolder) {
  fs::create_directories(dir_);
  EXPECT_TRUE(ResultsWriter::Create(dir_, header_).ok());
  const Result<ResultsWriter> again = ResultsWriter::Create(dir_, header_);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("is not empty (it holds results.jsonl)"), std::string::npos);
  EXPECT_EQ(again.error().kind, ErrorKind::kBadInput);

  const std::string other = root_ + "/other";
  fs::create_directories(other);
  std::ofstream(other + "/notes.txt") << "mine";
  EXPECT_FALSE(ResultsWriter::Create(other, header_).ok());
  EXPECT_TRUE(ResultsWriter::Create(other, header_, ResultsWriter::Folder::kMayHoldFiles).ok());
  EXPECT_TRUE(fs::exists(other + "/notes.txt"));
  EXPECT_FALSE(ResultsWriter::Create(other, header_, ResultsWriter::Folder::kMayHoldFiles).ok());
}

TEST_F(Results, AFolderThatCannotBeMadeIsOneLine) {
  std::ofstream(root_ + "/file") << "x";
  const Result<ResultsWriter> writer = ResultsWriter::Create(root_ + "/file/out", header_);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().kind, ErrorKind::kEnvironment);
  EXPECT_NE(writer.error().message.find("/file/out: Not a directory"), std::string::npos)
      << writer.error().message;
  EXPECT_EQ(writer.error().message.find('\n'), std::string::npos);
}

// The file size limit stops a write in the middle of a line, as a full disk does.
TEST_F(Results, ALineThatDoesNotFitIsTakenBack) {
  Result<ResultsWriter> writer = ResultsWriter::Create(dir_, header_);
  ASSERT_TRUE(writer.ok());
  CellMaker maker(3);
  ASSERT_TRUE(writer->Append(maker.Make()).ok());
  const std::string before = Contents();

  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = before.size() + 40;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const CellResult cell = maker.Make();
  const Status full = writer->Append(cell);
  const std::string after = Contents();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);

  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().message, "cannot write " + File() + ": File too large");
  EXPECT_EQ(after, before);
  ASSERT_TRUE(writer->Append(cell).ok());  // room again: the run goes on
  EXPECT_EQ(Contents(), before + ToJson(cell) + "\n");
}

// Wherever the file ends, all whole lines are read, and only the torn one is left out.
TEST_F(Results, EveryTornEndIsTolerated) {
  const std::string text = MakeRun(3, true);
  const size_t header_end = text.find('\n') + 1;
  for (size_t size = 0; size <= text.size(); ++size) {
    SetContents(text.substr(0, size));
    const Result<RunRecord> record = ReadResults(dir_);
    if (size + 1 < header_end) {
      ASSERT_FALSE(record.ok());
      ASSERT_FALSE(HasRecord(dir_));
      continue;
    }
    ASSERT_TRUE(record.ok()) << record.error().message;
    // A line that only lacks its newline is whole.
    const std::string seen = text.substr(0, std::min(size + 1, text.size()));
    const auto lines = std::count(seen.begin(), seen.end(), '\n');
    ASSERT_EQ(record->cells.size(), static_cast<size_t>(std::min<int64_t>(lines - 1, 3)));
    ASSERT_EQ(record->finished(), lines == 5) << size;
    const bool at_line_end = seen.back() == '\n' || text[size - 1] == '\n';
    ASSERT_EQ(record->torn.empty(), at_line_end) << size;
    if (!record->torn.empty()) {
      const std::string line = ":" + std::to_string(lines + 1) + ": ";
      ASSERT_NE(record->torn.find(line), std::string::npos) << record->torn;
    }
  }
}

TEST_F(Results, WrongLinesElsewhereAreErrorsWithTheirNumber) {
  const std::string run = MakeRun(3, true);
  std::vector<std::string> lines;
  std::istringstream in(run);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 5u);
  const auto message = [&](const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& line : all) text += line + "\n";
    SetContents(text);
    const Result<RunRecord> record = ReadResults(dir_);
    return record.ok() ? "" : record.error().message.substr(File().size());
  };
  const auto& l = lines;
  EXPECT_EQ(message(l), "");
  EXPECT_EQ(message({l[0], l[1], "{\"type\":", l[2]}).rfind(":3: not JSON", 0), 0u);
  EXPECT_EQ(message({l[0], l[1], "", l[2]}).rfind(":3: ", 0), 0u);
  EXPECT_EQ(message({l[0], l[1], "x"}).rfind(":3: ", 0), 0u);  // it has its newline: not torn
  EXPECT_EQ(message({l[1], l[0]}), ":1: the first line must be of type \"run\"");
  EXPECT_EQ(message({l[0], l[0]}), ":2: a second line of type \"run\"; only the first may be one");
  EXPECT_EQ(message({l[0], l[1], l[2], l[3], l[4], l[1]}),
            ":6: a line after the summary, which must be the last");
  EXPECT_EQ(message({l[0], l[1], l[2], l[4]}), ":4: the summary does not fit the file's 2 cells");
  EXPECT_EQ(message({}), ":1: the first line must be of type \"run\", but the file is empty");
}

TEST_F(Results, NoFileIsAnEnvironmentError) {
  const Result<RunRecord> record = ReadResults(dir_);
  ASSERT_FALSE(record.ok());
  EXPECT_EQ(record.error().kind, ErrorKind::kEnvironment);
}

TEST_F(Results, ResumeCutsTheTornLineAndGoesOn) {
  const std::string whole = MakeRun(3, false);
  const std::string finished = MakeRun(3, true);
  struct Case {
    std::string text;
    size_t cells;
  };
  const size_t second = whole.find('\n', whole.find('\n', whole.find('\n') + 1) + 1) + 1;
  for (const Case& one : {Case{whole, 3}, Case{whole.substr(0, whole.size() - 1), 3},
                          Case{whole.substr(0, whole.size() - 5), 2}, Case{finished, 3},
                          Case{whole.substr(0, second + 1), 2}}) {
    SetContents(one.text);
    ASSERT_TRUE(HasRecord(dir_));
    RunRecord record;
    Result<ResultsWriter> writer = ResultsWriter::Resume(dir_, &record);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    EXPECT_EQ(record.cells.size(), one.cells);
    EXPECT_FALSE(record.finished());
    Totals totals = record.Count();
    CellMaker maker(99);
    const CellResult cell = maker.Make();
    totals.Add(cell.verdict);
    totals.registered = totals.collected;
    ASSERT_TRUE(writer->Append(cell).ok());
    ASSERT_TRUE(writer->Finish(totals, 1).ok());
    const Result<RunRecord> back = ReadResults(dir_);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_TRUE(back->finished());
    EXPECT_EQ(back->torn, "");
    EXPECT_EQ(back->cells.size(), one.cells + 1);
  }
}

TEST_F(Results, ARunKilledInItsFirstLineCanStartAfresh) {
  SetContents("{\"type\":\"run\",\"run_");
  EXPECT_FALSE(HasRecord(dir_));
  EXPECT_TRUE(ResultsWriter::Create(dir_, header_).ok());
  EXPECT_TRUE(HasRecord(dir_));
  // Somebody else's file is not ours to overwrite.
  SetContents("my notes");
  EXPECT_FALSE(ResultsWriter::Create(dir_, header_).ok());
  EXPECT_EQ(Contents(), "my notes");
}

TEST_F(Results, TwoProcessesCannotWriteTheSameRun) {
  Result<ResultsWriter> writer = ResultsWriter::Create(dir_, header_);
  ASSERT_TRUE(writer.ok());
  const pid_t child = fork();
  if (child == 0) {
    RunRecord record;
    const Result<ResultsWriter> other = ResultsWriter::Resume(dir_, &record);
    const bool refused =
        !other.ok() && other.error().message.find("another run is writing") != std::string::npos;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Reading the record, as the end of a run does, does not let another writer in.
TEST_F(Results, ReadingKeepsTheLock) {
  Result<ResultsWriter> writer = ResultsWriter::Create(dir_, header_);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(ReadResults(dir_).ok());
  RunRecord record;
  EXPECT_FALSE(ResultsWriter::Resume(dir_, &record).ok());
}

// A child that outlives its killed parent for a moment neither holds the lock nor can write.
TEST_F(Results, ChildrenHaveNeitherFileNorLock) {
  auto writer = std::make_unique<Result<ResultsWriter>>(ResultsWriter::Create(dir_, header_));
  ASSERT_TRUE(writer->ok());
  const std::string before = Contents();
  int go[2], ready[2], status = -1;
  ASSERT_EQ(pipe(go), 0);
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(go[1]);
    const bool wrote = (*writer)->Append(CellMaker(1).Make()).ok();
    char byte = 0;
    (void)!write(ready[1], &byte, 1);
    (void)!read(go[0], &byte, 1);  // until the parent has let go of the pipe
    _exit(wrote ? 1 : 0);
  }
  close(go[0]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  writer.reset();
  RunRecord record;
  const Result<ResultsWriter> next = ResultsWriter::Resume(dir_, &record);
  EXPECT_TRUE(next.ok()) << next.error().message;
  close(go[1]);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Contents(), before);
}

// A child appends cells and says so on a pipe; it is killed at once after some of them. Every cell
// that it had reported must be in the file, and the file must read.
TEST_F(Results, AKillLosesNoAppendedCell) {
  for (int acknowledged = 0; acknowledged <= 40; acknowledged += 4) {
    fs::remove_all(dir_);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      Result<ResultsWriter> writer = ResultsWriter::Create(dir_, header_);
      if (!writer.ok()) _exit(3);
      CellMaker maker(5);
      for (char count = 0;; ++count) {
        if (write(ends[1], &count, 1) != 1) _exit(4);
        if (!writer->Append(maker.Make()).ok()) _exit(5);
      }
    }
    close(ends[1]);
    // Byte n arrives after the header and n cells were written.
    for (int i = 0; i <= acknowledged; ++i) {
      char count;
      ASSERT_EQ(read(ends[0], &count, 1), 1);
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    close(ends[0]);

    const Result<RunRecord> record = ReadResults(dir_);
    ASSERT_TRUE(record.ok()) << record.error().message;
    EXPECT_FALSE(record->finished());
    ASSERT_GE(record->cells.size(), static_cast<size_t>(acknowledged));
    CellMaker maker(5);
    for (const CellResult& cell : record->cells) ASSERT_EQ(ToJson(cell), ToJson(maker.Make()));
  }
}

}  // namespace
}  // namespace assay
