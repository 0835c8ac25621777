// Whether the engine chose the right way to read each parameter, before any byte is compared.
#pragma once

#include <vector>

#include "harness/run/spec.h"
#include "harness/store/result.h"

namespace assay::run {

// One divergence of class selection for each parameter that the engine, by its own word, read under
// another method than the file and its config say; data-flow order as in `expected`. What the
// engine does not tell is not judged.
std::vector<Divergence> WrongSelections(const CellSpec& spec, const EngineTrace& trace,
                                        const std::vector<ShardKey>& expected);

// As above, of each weight that stayed in the checkpoint's order although the cell asked for a
// layout that there is of its method: what was replaced without a word may even compute rightly.
std::vector<Divergence> WrongLayouts(const CellSpec& spec, const EngineTrace& trace,
                                     const std::vector<ShardKey>& expected);

// Tensors of a whole checkpoint that no parameter takes and that nothing explains, as one sentence;
// empty if there are none. Of a cell that loads the whole model.
std::string UnusedTensors(const CellSpec& spec);
// Those that nobody here plans yet (an attention whose family has no oracle), as one sentence.
std::string NotPlanned(const CellSpec& spec);

}  // namespace assay::run
