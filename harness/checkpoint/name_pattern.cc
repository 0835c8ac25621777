#include "harness/checkpoint/name_pattern.h"

#include <bitset>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace assay {
namespace {

// A longer pattern is no pattern of module names.
constexpr size_t kLongest = 4096;
constexpr int kDeepest = 64;
constexpr int kMostCounted = 100;       // in {}
constexpr size_t kMostStates = 16'384;  // counts multiply

using Letters = std::bitset<256>;

// Thompson's machine: each state takes a letter to the next state, splits, or stands for an anchor.
struct State {
  enum class Kind { kLetters, kSplit, kBegin, kEnd, kAccept } kind = Kind::kAccept;
  Letters letters;
  int next = -1, other = -1;
};

// A piece of machine: where it begins, and where its open end is to be joined.
struct Piece {
  int begin = -1;
  std::vector<std::pair<int, bool>> ends;  // state, and whether it is `other`
};

class Compiler {
 public:
  explicit Compiler(std::string_view pattern) : rest_(pattern) {}

  // nullopt: something that is not known.
  std::optional<int> Compile() {
    if (rest_.size() > kLongest) return std::nullopt;
    const auto piece = Alternatives(0);
    if (!piece || !rest_.empty()) return std::nullopt;
    Join(*piece, Add({State::Kind::kAccept, {}, -1, -1}));
    return piece->begin;
  }
  const std::vector<State>& states() const { return states_; }

 private:
  int Add(State state) {
    states_.push_back(state);
    return static_cast<int>(states_.size()) - 1;
  }
  void Join(const Piece& piece, int to) {
    for (const auto& [state, other] : piece.ends) {
      (other ? states_[static_cast<size_t>(state)].other
             : states_[static_cast<size_t>(state)].next) = to;
    }
  }
  bool Take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<Piece> Alternatives(int depth) {
    if (depth > kDeepest) return std::nullopt;
    auto first = Sequence(depth);
    while (first && Take('|')) {
      const auto second = Sequence(depth);
      if (!second) return std::nullopt;
      const int split = Add({State::Kind::kSplit, {}, first->begin, second->begin});
      first->begin = split;
      first->ends.insert(first->ends.end(), second->ends.begin(), second->ends.end());
    }
    return first;
  }

  std::optional<Piece> Sequence(int depth) {
    // An empty sequence is a split whose both ways lead on.
    std::optional<Piece> whole;
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      auto next = Repeated(depth);
      if (!next) return std::nullopt;
      if (whole) {
        Join(*whole, next->begin);
        whole->ends = std::move(next->ends);
      } else {
        whole = std::move(next);
      }
    }
    if (whole) return whole;
    const int empty = Add({State::Kind::kSplit, {}, -1, -1});
    return Piece{empty, {{empty, false}}};
  }

  std::optional<Piece> Repeated(int depth) {
    std::string_view text = rest_;
    auto piece = Atom(depth);
    text.remove_suffix(rest_.size());
    if (piece && Take('{')) {
      piece = Counted(text, depth);
      if (piece) Take('?');
    }
    while (piece && !rest_.empty()) {
      const char mark = rest_.front();
      if (mark != '*' && mark != '+' && mark != '?') break;
      rest_.remove_prefix(1);
      Take('?');  // lazy: the same names match
      piece = mark == '?' ? Optional(*piece) : Star(*piece, mark == '+');
    }
    return piece;
  }

  Piece Optional(const Piece& piece) {
    const int split = Add({State::Kind::kSplit, {}, piece.begin, -1});
    Piece optional{split, {{split, true}}};
    optional.ends.insert(optional.ends.end(), piece.ends.begin(), piece.ends.end());
    return optional;
  }
  Piece Star(const Piece& piece, bool at_least_once) {
    const int split = Add({State::Kind::kSplit, {}, piece.begin, -1});
    Join(piece, split);
    return {at_least_once ? piece.begin : split, {{split, true}}};
  }

  // What is between "{" and "}", applied to the atom of this text.
  std::optional<Piece> Counted(std::string_view text, int depth) {
    const std::optional<int> least = Count();
    std::optional<int> most = least;
    const bool open = least && Take(',') && !(most = Count());
    if (!least || !Take('}') || (most && (*most < *least || *most > kMostCounted))) {
      return std::nullopt;
    }
    if (*least > kMostCounted) return std::nullopt;
    const int empty = Add({State::Kind::kSplit, {}, -1, -1});
    Piece whole{empty, {{empty, false}}};
    const int copies = open ? *least + 1 : *most;
    for (int i = 0; i < copies; ++i) {
      const std::string_view after = std::exchange(rest_, text);
      std::optional<Piece> copy = Atom(depth + 1);
      rest_ = after;
      if (!copy || states_.size() > kMostStates) return std::nullopt;
      if (i >= *least) copy = open ? Star(*copy, false) : Optional(*copy);
      Join(whole, copy->begin);
      whole.ends = std::move(copy->ends);
    }
    return whole;
  }

  std::optional<int> Count() {
    int count = 0, digits = 0;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9' && digits < 4) {
      count = count * 10 + (rest_.front() - '0');
      rest_.remove_prefix(1);
      ++digits;
    }
    return digits > 0 ? std::optional(count) : std::nullopt;
  }

  std::optional<Piece> Atom(int depth) {
    if (Take('(')) {
      if (Take('?') && !Take(':')) return std::nullopt;  // lookahead and the like
      auto inside = Alternatives(depth + 1);
      if (!inside || !Take(')')) return std::nullopt;
      return inside;
    }
    if (Take('^')) return One(Add({State::Kind::kBegin, {}, -1, -1}));
    if (Take('$')) return One(Add({State::Kind::kEnd, {}, -1, -1}));
    Letters letters;
    if (!ReadLetters(&letters)) return std::nullopt;
    return One(Add({State::Kind::kLetters, letters, -1, -1}));
  }
  static Piece One(int state) { return {state, {{state, false}}}; }

  bool ReadLetters(Letters* letters) {
    if (Take('[')) return ReadClass(letters);
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (c == '.') {
      letters->set();
      return true;
    }
    if (c == '\\') return ReadEscape(letters);
    if (c == '{' || c == '*' || c == '+' || c == '?') return false;
    letters->set(static_cast<unsigned char>(c));
    return true;
  }

  bool ReadEscape(Letters* letters) {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    const char kind = static_cast<char>(c | 0x20);
    Letters found;
    if (kind == 'd' || kind == 'w') {
      for (int i = '0'; i <= '9'; ++i) found.set(static_cast<size_t>(i));
    }
    if (kind == 'w') {
      for (int i = 'a'; i <= 'z'; ++i) found.set(static_cast<size_t>(i)), found.set(i - 32u);
      found.set('_');
    }
    if (kind == 's') {
      for (const char blank : {' ', '\t', '\n', '\r', '\f', '\v'}) {
        found.set(static_cast<unsigned char>(blank));
      }
    }
    if (found.any()) {
      *letters |= c == kind ? found : ~found;
      return true;
    }
    // Any other escaped letter or digit has a meaning that is not known here.
    const bool plain = !((c >= '0' && c <= '9') || (kind >= 'a' && kind <= 'z'));
    if (plain) letters->set(static_cast<unsigned char>(c));
    return plain;
  }

  bool ReadClass(Letters* letters) {
    const bool inverse = Take('^');
    Letters found;
    bool first = true;
    while (!rest_.empty() && (first || rest_.front() != ']')) {
      first = false;
      if (Take('\\')) {
        if (!ReadEscape(&found)) return false;
        continue;
      }
      const auto low = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      unsigned char high = low;
      if (rest_.size() >= 2 && rest_[0] == '-' && rest_[1] != ']') {
        high = static_cast<unsigned char>(rest_[1]);
        rest_.remove_prefix(2);
      }
      for (int c = low; c <= high; ++c) found.set(static_cast<size_t>(c));
    }
    *letters = inverse ? ~found : found;
    return Take(']');
  }

  std::string_view rest_;
  std::vector<State> states_;
};

// The states that are reached without taking a letter.
void Follow(const std::vector<State>& states, int state, bool begin, bool end,
            std::vector<bool>* seen, std::vector<int>* open, std::vector<int>* out) {
  open->assign(1, state);
  while (!open->empty()) {
    const int at = open->back();
    open->pop_back();
    if (at < 0 || (*seen)[static_cast<size_t>(at)]) continue;
    (*seen)[static_cast<size_t>(at)] = true;
    const State& s = states[static_cast<size_t>(at)];
    out->push_back(at);
    if (s.kind == State::Kind::kSplit) open->insert(open->end(), {s.next, s.other});
    if (s.kind == State::Kind::kBegin && begin) open->push_back(s.next);
    if (s.kind == State::Kind::kEnd && end) open->push_back(s.next);
  }
}

}  // namespace

namespace {

struct Machine {
  std::optional<int> start;
  std::vector<State> states;
};

Machine CompileMachine(std::string_view pattern) {
  Compiler compiler(pattern);
  const std::optional<int> start = compiler.Compile();
  return {start, compiler.states()};
}

// A file has a handful of patterns and a hundred thousand names.
const Machine& CachedMachine(std::string_view pattern) {
  constexpr size_t kMostCached = 64;
  thread_local std::map<std::string, Machine, std::less<>> machines;
  const auto found = machines.find(pattern);
  if (found != machines.end()) return found->second;
  if (machines.size() >= kMostCached) machines.clear();
  return machines.emplace(pattern, CompileMachine(pattern)).first->second;
}

}  // namespace

bool IsRegex(std::string_view pattern) { return CachedMachine(pattern).start.has_value(); }

bool MatchesRegex(std::string_view pattern, std::string_view name) {
  const Machine& machine = CachedMachine(pattern);
  if (!machine.start) return false;
  const std::vector<State>& states = machine.states;
  std::vector<int> current, next, open;
  std::vector<bool> seen(states.size());
  Follow(states, *machine.start, true, name.empty(), &seen, &open, &current);
  for (size_t i = 0;; ++i) {
    for (const int state : current) {
      if (states[static_cast<size_t>(state)].kind == State::Kind::kAccept) return true;
    }
    if (i == name.size() || current.empty()) return false;
    next.clear();
    seen.assign(states.size(), false);
    for (const int state : current) {
      const State& s = states[static_cast<size_t>(state)];
      if (s.kind != State::Kind::kLetters || !s.letters[static_cast<unsigned char>(name[i])]) {
        continue;
      }
      Follow(states, s.next, false, i + 1 == name.size(), &seen, &open, &next);
    }
    std::swap(current, next);
  }
}

bool MatchesPrefix(std::string_view pattern, std::string_view name) {
  // The usual greedy walk over a pattern with stars; the end may be any dot or the name's own.
  size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  const auto ends = [&] { return p == pattern.size() && (n == name.size() || name[n] == '.'); };
  while (!ends()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < pattern.size() && n < name.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos && mark < name.size()) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace assay
