// One function a verb, one file a function. argv[0] is the verb.
#pragma once

namespace assay::cli {

int Run(int argc, char** argv);
int List(int argc, char** argv);
int Doctor(int argc, char** argv);
int Golden(int argc, char** argv);
int Mutate(int argc, char** argv);
int Report(int argc, char** argv);
int Bench(int argc, char** argv);
int Quantise(int argc, char** argv);
int Audit(int argc, char** argv);

}  // namespace assay::cli
