// Memory with guards and the transfer, without a child.
#include "harness/abi/transfer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "harness/abi/contract.h"
#include "harness/abi/guarded.h"
#include "harness/abi/watch.h"

namespace assay::abi {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

struct File {
  Descriptor fd{memfd_create("transfer-test", MFD_CLOEXEC)};
  RecordWriter writer{fd.get(), 1 << 20};
};

TEST(Transfer, RecordsComeBackInOrder) {
  File file;
  MetaWriter meta;
  meta.Put(-7);
  meta.Put("seven");
  meta.Put("");
  RecordPlace place;
  ASSERT_TRUE(file.writer.Write(RecordType::kTap, meta.bytes(), Bytes("values"), &place));
  ASSERT_TRUE(file.writer.Write(RecordType::kNote, {}, {}));
  EXPECT_EQ(file.writer.FirstDifference(place, Bytes("values")), -1);
  EXPECT_EQ(file.writer.FirstDifference(place, Bytes("vaLues")), 2);
  EXPECT_EQ(file.writer.FirstDifference(place, Bytes("value")), 5);
  EXPECT_EQ(file.writer.FirstDifference(place, Bytes("valuesX")), 6);

  RecordReader reader(file.fd.get());
  auto first = reader.Next();
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ((*first)->type, RecordType::kTap);
  EXPECT_EQ((*first)->data.size(), 6u);
  MetaReader read((*first)->meta);
  EXPECT_EQ(read.Number(), -7);
  EXPECT_EQ(read.Text(), "seven");
  EXPECT_EQ(read.Text(), "");
  EXPECT_TRUE(read.complete());
  auto second = reader.Next();
  ASSERT_TRUE(second.ok() && second->has_value());
  auto end = reader.Next();
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->has_value());
}

TEST(Transfer, MetaThatLies) {
  MetaWriter meta;
  meta.Put(1000);  // as a string's length
  MetaReader longer(meta.bytes());
  EXPECT_EQ(longer.Text(), "");
  EXPECT_FALSE(longer.ok());
  EXPECT_EQ(longer.Number(), 0);
  MetaWriter negative;
  negative.Put(-1);
  MetaReader minus(negative.bytes());
  EXPECT_EQ(minus.Text(), "");
  EXPECT_FALSE(minus.complete());
  MetaReader unread(meta.bytes());
  EXPECT_FALSE(unread.complete());
}

// Whatever byte is changed, the reader ends with an error or with fewer records, never with other
// data.
TEST(Transfer, EveryChangedByteIsFound) {
  File original;
  MetaWriter meta;
  meta.Put("name");
  ASSERT_TRUE(original.writer.Write(RecordType::kTap, meta.bytes(), Bytes("some values")));
  const off_t size = lseek(original.fd.get(), 0, SEEK_END);
  ASSERT_GT(size, 40);
  for (off_t at = 0; at < size; ++at) {
    for (unsigned char flip : {0x01, 0x80, 0xff}) {
      unsigned char byte = 0;
      ASSERT_EQ(pread(original.fd.get(), &byte, 1, at), 1);
      const unsigned char changed = byte ^ flip;
      ASSERT_EQ(pwrite(original.fd.get(), &changed, 1, at), 1);
      EXPECT_FALSE(RecordReader(original.fd.get()).Next().ok()) << at;
      ASSERT_EQ(pwrite(original.fd.get(), &byte, 1, at), 1);
    }
  }
  for (off_t length = size - 1; length > 0; --length) {
    ASSERT_EQ(ftruncate(original.fd.get(), length), 0);
    EXPECT_FALSE(RecordReader(original.fd.get()).Next().ok()) << length;
  }
}

TEST(Transfer, ARecordThatWasCutOffIsTheEnd) {
  File file;
  ASSERT_TRUE(file.writer.Write(RecordType::kNote, {}, Bytes("whole")));
  const off_t end = lseek(file.fd.get(), 0, SEEK_END);
  // As a child leaves it that is killed between the values and the head.
  ASSERT_EQ(pwrite(file.fd.get(), "values", 6, end + 64), 6);
  RecordReader reader(file.fd.get());
  EXPECT_TRUE(reader.Next()->has_value());
  auto next = reader.Next();
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->has_value());
}

TEST(Transfer, TheLimitKeepsRoomForTheEnd) {
  File file;
  RecordWriter small(file.fd.get(), 100);
  EXPECT_FALSE(small.Write(RecordType::kTap, {}, Bytes(std::string(101, 'x'))));
  EXPECT_FALSE(small.Write(RecordType::kTap, {}, Bytes(std::string(99, 'x'))));
  EXPECT_TRUE(small.Write(RecordType::kTap, {}, Bytes(std::string(60, 'x'))));
  EXPECT_FALSE(small.Write(RecordType::kTap, {}, Bytes("x")));
  EXPECT_TRUE(small.Write(RecordType::kEnd, {}, Bytes("the end")));
  RecordReader reader(file.fd.get());
  EXPECT_EQ((*reader.Next())->type, RecordType::kTap);
  EXPECT_EQ((*reader.Next())->type, RecordType::kEnd);
}

TEST(CleanText, KeepsTextAndReplacesTheRest) {
  EXPECT_EQ(CleanText("a\tb\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"),
            "a\tb\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(CleanText(std::string_view("\0\x1b[m\x7f", 5)), "??[m?");
  EXPECT_EQ(CleanText("\xff\xc3"), "??");                 // no sequence, half a sequence
  EXPECT_EQ(CleanText("\xc0\x80\xe0\x80\x80"), "?????");  // overlong
  EXPECT_EQ(CleanText("\xed\xa0\x80"), "???");            // a surrogate
  EXPECT_EQ(CleanText("\xf4\x90\x80\x80"), "????");       // beyond Unicode
  EXPECT_EQ(CleanLine("a\nb\tc"), "a b c");
}

double ValueOf(uint64_t bits, DType dtype) {
  if (dtype == DType::kF32) {
    const auto word = static_cast<uint32_t>(bits);
    float value = 0;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
  const int fraction_bits = dtype == DType::kBF16 ? 7 : 10;
  const int bias = dtype == DType::kBF16 ? 127 : 15;
  const int exponent = static_cast<int>(bits >> fraction_bits);
  const auto fraction = static_cast<double>(bits & ((1u << fraction_bits) - 1));
  return std::ldexp(1 + std::ldexp(fraction, -fraction_bits), exponent - bias);
}

TEST(Poison, LargeIsTenThousandRoundedToTheType) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(ValueOf(PoisonBits(Poison::kLarge, dtype), dtype), RoundTo(1e4, dtype));
  }
  EXPECT_EQ(PoisonBits(Poison::kLarge, DType::kI32), 10000u);
  EXPECT_EQ(PoisonBits(Poison::kNaN, DType::kBF16), 0xffffu);
  EXPECT_EQ(PoisonBits(Poison::kNaN, DType::kF64), ~uint64_t{0});
}

TEST(Guarded, BuffersEndAtTheirGuardPageAndSeeTheirMargins) {
  for (uint64_t bytes : {0, 1, 24, 64, 4096, 5000, 8192}) {
    for (uint64_t alignment : {1, 64, 4096}) {
      for (Poison poison : {Poison::kNaN, Poison::kLarge}) {
        auto buffer = GuardedBuffer::Make("it", bytes, alignment, poison);
        ASSERT_NE(buffer, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % alignment, 0u);
        FillPoison(poison, DType::kBF16, buffer->span());
        EXPECT_EQ(buffer->CheckMargins(), "");
        const uint64_t slack = (alignment - bytes % alignment) % alignment;
        int64_t distance = -1;
        EXPECT_EQ(GuardedBuffer::FindByGuard(buffer->data() + bytes + slack, &distance),
                  buffer.get());
        EXPECT_EQ(distance, static_cast<int64_t>(slack));
        EXPECT_EQ(GuardedBuffer::FindByGuard(buffer->data() - 1, &distance), nullptr);
        std::byte& before = buffer->data()[-1];
        const std::byte kept = before;
        before ^= std::byte{1};
        EXPECT_EQ(buffer->CheckMargins(), "wrote 1 bytes before the start of it");
        before = kept;
        if (slack == 0) continue;
        buffer->data()[bytes + slack - 1] ^= std::byte{1};
        EXPECT_EQ(buffer->CheckMargins(), "wrote 1 bytes past the end of it");
      }
    }
  }
}

TEST(Guarded, WhatCannotBeMade) {
  EXPECT_EQ(GuardedBuffer::Make("it", 8, 0, Poison::kNaN), nullptr);
  EXPECT_EQ(GuardedBuffer::Make("it", 8, 24, Poison::kNaN), nullptr);
  EXPECT_EQ(GuardedBuffer::Make("it", 8, 8192, Poison::kNaN), nullptr);
  EXPECT_EQ(GuardedBuffer::Make("it", ~uint64_t{0}, 64, Poison::kNaN), nullptr);
  EXPECT_EQ(GuardedBuffer::Make("it", uint64_t{1} << 62, 64, Poison::kNaN), nullptr);
}

}  // namespace
}  // namespace assay::abi
