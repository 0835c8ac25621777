// For tests: goldens/formats, one file a storage format: packed tensors and other people's values.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/checkpoint/safetensors.h"
#include "reference/methods/methods_test_support.h"

namespace assay::reference::testing_support {

struct Vector {
  std::string file;
  std::string method;
  // Stated relative difference of `expected` from the exact product; 0: equal.
  double stated = 0;
};

inline std::unique_ptr<SafetensorsFile> OpenFile(const std::string& name) {
  auto file = SafetensorsFile::Open("goldens/formats/" + name + ".safetensors");
  if (!file) {
    ADD_FAILURE() << file.error().message;
    std::abort();
  }
  return std::move(*file);
}

// One matrix of a vector: its parts and the values that are expected of it, [rows, columns].
struct Matrix {
  Parts parts;
  int64_t rows = 0, columns = 0;
  std::vector<double> expected;
};

inline TensorView Slab(const TensorView& view, int64_t index) {
  TensorView slab = view;
  slab.shape.erase(slab.shape.begin());
  const size_t size = view.bytes.size() / static_cast<size_t>(view.shape[0]);
  slab.bytes = view.bytes.subspan(static_cast<size_t>(index) * size, size);
  return slab;
}

// gpt-oss: `expected` is [experts, in, out], the transpose.
inline std::vector<Matrix> Experts(const SafetensorsFile& file, const std::string& module) {
  const TensorView& expected = *file.Find("expected");
  std::vector<Matrix> matrices(static_cast<size_t>(expected.shape[0]));
  for (size_t e = 0; e < matrices.size(); ++e) {
    Matrix& matrix = matrices[e];
    matrix.rows = expected.shape[2];
    matrix.columns = expected.shape[1];
    for (const char* suffix : {"blocks", "scales"}) {
      matrix.parts.Set(suffix, Slab(*file.Find(module + "_" + suffix), static_cast<int64_t>(e)));
    }
    const int64_t size = matrix.rows * matrix.columns;
    std::vector<double> transposed(static_cast<size_t>(size));
    DecodeFloats(expected, static_cast<int64_t>(e) * size, size, transposed.data());
    for (int64_t n = 0; n < matrix.rows; ++n) {
      for (int64_t k = 0; k < matrix.columns; ++k) {
        matrix.expected.push_back(transposed[static_cast<size_t>(k * matrix.rows + n)]);
      }
    }
  }
  return matrices;
}

inline std::vector<Matrix> Matrices(const SafetensorsFile& file, const Vector& vector) {
  if (vector.method == "gptoss-mxfp4") {
    return Experts(file, vector.file.substr(std::string("gptoss-mxfp4-").size()));
  }
  std::vector<Matrix> one(1);
  one[0].parts = Parts(file);
  const TensorView& expected = *file.Find("expected");
  one[0].rows = expected.shape[0];
  one[0].columns = expected.shape[1];
  one[0].expected.resize(static_cast<size_t>(one[0].rows * one[0].columns));
  DecodeFloats(expected, 0, one[0].rows * one[0].columns, one[0].expected.data());
  return one;
}

inline std::unique_ptr<Decoder> Open(const Matrix& matrix, const std::string& method) {
  return MustOpen(matrix.parts, ConfigOf(method), matrix.rows, matrix.columns);
}

}  // namespace assay::reference::testing_support
