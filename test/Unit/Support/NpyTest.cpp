//===- NpyTest.cpp - Valid and malformed .npy files ---------------------------===//
#include "saccade/Support/Npy.h"
#include "gtest/gtest.h"
#include <cmath>
#include <limits>
#include <random>

using namespace saccade;

namespace {

/// A version 1 file with this header text and data.
std::string makeFile(std::string header, const std::string &data, char version = 1) {
  header += '\n';
  std::string file = std::string("\x93NUMPY", 6) + version + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + data;
}

std::string bytesOf(const std::vector<float> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float)};
}

std::vector<double> valuesOf(const HostTensor &tensor) {
  std::vector<double> values;
  tensor.forEach([&](char *element) { values.push_back(readElement(tensor.type(), element)); });
  return values;
}

std::string errorOf(llvm::StringRef file) {
  llvm::Expected<HostTensor> tensor = parseNpy(file);
  return tensor ? "" : llvm::toString(tensor.takeError());
}

const char *const plainHeader = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

TEST(Npy, ReadsRowMajorFloats) {
  llvm::Expected<HostTensor> tensor = parseNpy(makeFile(plainHeader, bytesOf({1, 2, 3, 4, 5, 6})));
  ASSERT_TRUE(bool(tensor));
  EXPECT_EQ(ElementType::f32, tensor->type());
  EXPECT_EQ((std::vector<int64_t>{2, 3}), tensor->shape().vec());
  EXPECT_EQ((std::vector<double>{1, 2, 3, 4, 5, 6}), valuesOf(*tensor));
}

TEST(Npy, ColumnMajorDataKeepsItsStrides) {
  auto tensor =
      parseNpy(makeFile("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", bytesOf({1, 4, 2, 5, 3, 6})));
  ASSERT_TRUE(bool(tensor));
  EXPECT_EQ((std::vector<int64_t>{1, 2}), tensor->strides().vec());
  EXPECT_EQ((std::vector<double>{1, 2, 3, 4, 5, 6}), valuesOf(*tensor));
}

TEST(Npy, VersionsTwoAndThreeHaveLongHeaders) {
  for (char version : {2, 3})
    EXPECT_TRUE(bool(parseNpy(makeFile(plainHeader, bytesOf({1, 2, 3, 4, 5, 6}), version)))) << int(version);
}

TEST(Npy, ScalarsVectorsAndEmptyTensors) {
  auto scalar = parseNpy(makeFile("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", bytesOf({7})));
  ASSERT_TRUE(bool(scalar));
  EXPECT_EQ((std::vector<double>{7}), valuesOf(*scalar));
  auto vector = parseNpy(makeFile("{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }", std::string(8, '\0')));
  ASSERT_TRUE(bool(vector));
  EXPECT_EQ(ElementType::i64, vector->type());
  auto empty = parseNpy(makeFile("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 5), }", ""));
  ASSERT_TRUE(bool(empty));
  EXPECT_EQ(0, empty->size());
}

TEST(Npy, BytesAreFloatsOf8Bits) {
  for (const char *descr : {"|u1", "|V1", "<V1"}) {
    std::string header = std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (3,), }";
    auto tensor = parseNpy(makeFile(header, "\x01\x7e\xbf"));
    ASSERT_TRUE(bool(tensor)) << descr;
    EXPECT_EQ(ElementType::f8E4M3FN, tensor->type());
    EXPECT_EQ((std::vector<double>{0x1p-9, 448, -1.875}), valuesOf(*tensor));
  }
  auto tensor = parseNpy(makeFile("{'descr': '<f1', 'fortran_order': False, 'shape': (3,), }", "\x01\x7b\xbc"));
  ASSERT_TRUE(bool(tensor));
  EXPECT_EQ(ElementType::f8E5M2, tensor->type());
  EXPECT_EQ((std::vector<double>{0x1p-16, 57344, -1}), valuesOf(*tensor));
}

TEST(Npy, FloatsOf8BitsAreRoundedAndWrittenAsFloat32) {
  auto tensor = HostTensor::allocate(ElementType::f32, {4});
  ASSERT_TRUE(bool(tensor));
  auto *values = reinterpret_cast<float *>(tensor->data());
  std::copy_n(std::vector<float>{1.0625f, 464, -1e9f, 0x1p-10f}.data(), 4, values);
  auto narrow = tensor->convertTo(ElementType::f8E4M3FN);
  ASSERT_TRUE(bool(narrow));
  EXPECT_EQ((std::vector<double>{1, 448, -448, 0}), valuesOf(*narrow));
  std::string file;
  llvm::raw_string_ostream stream(file);
  ASSERT_FALSE(bool(writeNpy(*narrow, stream)));
  auto read = parseNpy(file);
  ASSERT_TRUE(bool(read));
  EXPECT_EQ(ElementType::f32, read->type());
  EXPECT_EQ((std::vector<double>{1, 448, -448, 0}), valuesOf(*read));
}

TEST(Npy, SaysWhatIsWrongWithAFile) {
  EXPECT_NE(std::string::npos, errorOf("").find("magic"));
  EXPECT_NE(std::string::npos, errorOf("PK\x03\x04 a zip file").find("magic"));
  EXPECT_NE(std::string::npos, errorOf(makeFile(plainHeader, bytesOf({1, 2}))).find("8 bytes of data, expected 24"));
  EXPECT_NE(std::string::npos,
            errorOf(makeFile("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", "")).find("'<c8'"));
  EXPECT_NE(std::string::npos,
            errorOf(makeFile("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "")).find("'>f4'"));
  EXPECT_NE(std::string::npos, errorOf(makeFile("{'descr': '<f4', 'shape': (1,), }", "")).find("lacks"));
  EXPECT_NE(std::string::npos,
            errorOf(makeFile("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "")).find("descr"));
  EXPECT_NE(std::string::npos,
            errorOf(makeFile("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999), }", ""))
                .find("too large"));
  EXPECT_NE(std::string::npos,
            errorOf(makeFile("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "")).find("shape"));
  EXPECT_NE(std::string::npos, errorOf(makeFile(plainHeader, "", 9)).find("version 9"));
}

TEST(Npy, HasAtMost32Dimensions) {
  for (unsigned rank : {1, 31, 32, 33, 34, 64}) {
    std::string extents;
    for (unsigned i = 0; i < rank; ++i)
      extents += "1,";
    std::string file =
        makeFile("{'descr': '<f4', 'fortran_order': False, 'shape': (" + extents + "), }", bytesOf({1.5f}));
    std::string error = errorOf(file);
    if (rank <= 32)
      EXPECT_EQ("", error) << rank;
    else
      EXPECT_NE(std::string::npos, error.find("it has " + std::to_string(rank) + " dimensions")) << error;
  }
}

TEST(Npy, EveryPrefixAndEveryFlippedByteIsSurvived) {
  std::string file = makeFile(plainHeader, bytesOf({1, 2, 3, 4, 5, 6}));
  for (size_t length = 0; length < file.size(); ++length)
    EXPECT_FALSE(errorOf(llvm::StringRef(file).take_front(length)).empty()) << length;
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = file;
    for (int flips = 0; flips < 3; ++flips)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    llvm::Expected<HostTensor> tensor = parseNpy(damaged);
    if (!tensor)
      llvm::consumeError(tensor.takeError());
  }
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  for (ElementType type : {ElementType::i1, ElementType::i8, ElementType::i16, ElementType::i32, ElementType::i64,
                           ElementType::f16, ElementType::f32, ElementType::f64}) {
    llvm::Expected<HostTensor> tensor = HostTensor::allocate(type, {3, 1, 5}, /*columnMajor=*/true);
    ASSERT_TRUE(bool(tensor));
    tensor->fillRandom(3);
    std::string file;
    llvm::raw_string_ostream os(file);
    ASSERT_FALSE(bool(writeNpy(*tensor, os)));
    llvm::Expected<HostTensor> again = parseNpy(file);
    ASSERT_TRUE(bool(again));
    EXPECT_EQ(type, again->type());
    EXPECT_EQ(valuesOf(*tensor), valuesOf(*again));
    EXPECT_EQ(0u, file.find("\x93NUMPY"));
    EXPECT_EQ(0u, (file.size() - again->bytes()) % 64);
  }
}

TEST(Npy, Bf16IsWidenedWhenWrittenAndTakenFromSixteenBitsWhenRead) {
  llvm::Expected<HostTensor> tensor = HostTensor::allocate(ElementType::bf16, {4});
  ASSERT_TRUE(bool(tensor));
  tensor->fillRandom(5);
  std::string file;
  llvm::raw_string_ostream os(file);
  ASSERT_FALSE(bool(writeNpy(*tensor, os)));
  llvm::Expected<HostTensor> wide = parseNpy(file);
  ASSERT_TRUE(bool(wide));
  EXPECT_EQ(ElementType::f32, wide->type());
  EXPECT_EQ(valuesOf(*tensor), valuesOf(*wide));
  auto raw =
      parseNpy(makeFile("{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }", std::string("\x80\x3f", 2)));
  ASSERT_TRUE(bool(raw));
  EXPECT_EQ((std::vector<double>{1}), valuesOf(*raw));
}

TEST(HostTensor, SizesThatOverflowAreRefused) {
  for (const std::vector<int64_t> &shape : {std::vector<int64_t>{int64_t(1) << 40, int64_t(1) << 40}, {-1}}) {
    llvm::Expected<HostTensor> tensor = HostTensor::allocate(ElementType::f32, shape);
    ASSERT_FALSE(bool(tensor));
    llvm::consumeError(tensor.takeError());
  }
}

TEST(HostTensor, NewTensorsAreZero) {
  llvm::Expected<HostTensor> tensor = HostTensor::allocate(ElementType::f32, {3, 5});
  ASSERT_TRUE(bool(tensor));
  EXPECT_EQ(std::vector<double>(15), valuesOf(*tensor));
}

TEST(HostTensor, RandomNumbersAreStandardNormalAndRepeatable) {
  llvm::Expected<HostTensor> first = HostTensor::allocate(ElementType::f64, {100000});
  llvm::Expected<HostTensor> second = HostTensor::allocate(ElementType::f64, {100000});
  ASSERT_TRUE(bool(first) && bool(second));
  first->fillRandom(42);
  second->fillRandom(42);
  std::vector<double> values = valuesOf(*first);
  EXPECT_EQ(values, valuesOf(*second));
  double sum = 0, squares = 0;
  for (double value : values) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(0, sum / 1e5, 0.02);
  EXPECT_NEAR(1, squares / 1e5, 0.03);
  second->fillRandom(43);
  EXPECT_NE(values, valuesOf(*second));
}

TEST(ElementType, RoundsToNearestEvenAndSaturates) {
  uint16_t bits;
  writeElement(ElementType::bf16, &bits, 1 + 1.0 / 256); // halfway: to even
  EXPECT_EQ(0x3f80, bits);
  writeElement(ElementType::bf16, &bits, 1 + 3.0 / 256);
  EXPECT_EQ(0x3f82, bits);
  writeElement(ElementType::f16, &bits, 65520);
  EXPECT_TRUE(std::isinf(readElement(ElementType::f16, &bits)));
  writeElement(ElementType::bf16, &bits, std::nan(""));
  EXPECT_TRUE(std::isnan(readElement(ElementType::bf16, &bits)));
  int32_t integer;
  writeElement(ElementType::i32, &integer, 1e20);
  EXPECT_EQ(std::numeric_limits<int32_t>::max(), integer);
  writeElement(ElementType::i32, &integer, std::nan(""));
  EXPECT_EQ(0, integer);
}

} // namespace
