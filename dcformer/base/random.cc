#include "dcformer/base/random.h"

#include <cmath>
#include <numbers>

namespace dcformer {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;

uint64_t fnv1a(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

double to_unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * c[0];
    const uint64_t p1 = uint64_t{kMultiplier1} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return c;
}

Random::Random(uint64_t seed, std::string_view name) : Random(seed, fnv1a(name)) {}

std::array<uint32_t, 4> Random::words(uint64_t index) const {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                 static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
}

uint64_t Random::bits(uint64_t index) const {
  const auto w = words(index);
  return uint64_t{w[1]} << 32 | w[0];
}

double Random::uniform(uint64_t index) const { return to_unit(bits(index)); }

uint64_t Random::below(uint64_t index, uint64_t n) const {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits(index)) * n >> 64);
}

void Random::fill_normal(std::span<float> values, double deviation, uint64_t first) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto w = words(first + i);
    const double u = 1 - to_unit(uint64_t{w[1]} << 32 | w[0]);
    const double angle = 2 * std::numbers::pi * to_unit(uint64_t{w[3]} << 32 | w[2]);
    values[i] = static_cast<float>(deviation * std::sqrt(-2 * std::log(u)) * std::cos(angle));
  }
}

}  // namespace dcformer
