#include "dcformer/generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "tests/io/expect_error.h"

namespace dcformer {
namespace {

// Logits of the given probabilities, up to a constant.
std::vector<float> logits_of(const std::vector<double>& probabilities, double shift = 0) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + shift));
  return logits;
}

std::map<int32_t, int> draw(const SamplingOptions& options, const std::vector<float>& logits,
                            int n) {
  Sampler sampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sampler.sample(logits)];
  return counts;
}

std::set<int32_t> drawn(const SamplingOptions& options, const std::vector<float>& logits) {
  std::set<int32_t> ids;
  for (const auto& [id, count] : draw(options, logits, 4000)) ids.insert(id);
  return ids;
}

using Ids = std::set<int32_t>;

TEST(Sampler, TemperatureZeroTakesTheLargest) {
  EXPECT_EQ(drawn({.temperature = 0}, {1, 3, 2, 3}), Ids{1});
  EXPECT_EQ(drawn({.temperature = 0, .top_k = 3, .top_p = 0.9}, {-5, -9}), Ids{0});
  EXPECT_EQ(drawn({.temperature = 0}, {7}), Ids{0});
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(drawn({.temperature = 0}, {-infinity, -1e30f, -infinity}), Ids{1});
}

TEST(Sampler, TopKKeepsTheLargest) {
  const std::vector<float> logits = {0, 0.3f, 0.2f, 0.1f};
  EXPECT_EQ(drawn({.top_k = 1}, logits), Ids{1});
  EXPECT_EQ(drawn({.top_k = 2}, logits), (Ids{1, 2}));
  EXPECT_EQ(drawn({.top_k = 3}, logits), (Ids{1, 2, 3}));
  for (const int64_t k : {0, 4, 5, 1000})
    EXPECT_EQ(drawn({.top_k = k}, logits), (Ids{0, 1, 2, 3})) << k;
  // Of equal ones the lower ids.
  EXPECT_EQ(drawn({.top_k = 2}, {1, 1, 1, 1}), (Ids{0, 1}));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  // In order: 0.4 (2), 0.3 (0), 0.2 (3), 0.1 (1); sums 0.4, 0.7, 0.9, 1.
  const std::vector<float> logits = logits_of({0.3, 0.1, 0.4, 0.2}, 5);
  EXPECT_EQ(drawn({.top_p = 1e-9}, logits), Ids{2});
  EXPECT_EQ(drawn({.top_p = 0.39}, logits), Ids{2});
  EXPECT_EQ(drawn({.top_p = 0.41}, logits), (Ids{2, 0}));
  EXPECT_EQ(drawn({.top_p = 0.69}, logits), (Ids{2, 0}));
  EXPECT_EQ(drawn({.top_p = 0.71}, logits), (Ids{2, 0, 3}));
  EXPECT_EQ(drawn({.top_p = 0.91}, logits), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(drawn({.top_p = 1}, logits), (Ids{0, 1, 2, 3}));
}

TEST(Sampler, TopPComesAfterTemperatureAndTopK) {
  const std::vector<float> logits = logits_of({0.3, 0.1, 0.4, 0.2});
  // Of the largest two, renormalised: 0.4/0.7 = 0.571, 0.3/0.7 = 0.429.
  EXPECT_EQ(drawn({.top_k = 2, .top_p = 0.56}, logits), Ids{2});
  EXPECT_EQ(drawn({.top_k = 2, .top_p = 0.58}, logits), (Ids{2, 0}));
  // At temperature 0.5 probabilities are squared: 0.16, 0.09, 0.04, 0.01 of 0.3: 0.533, 0.833, …
  EXPECT_EQ(drawn({.temperature = 0.5, .top_p = 0.52}, logits), Ids{2});
  EXPECT_EQ(drawn({.temperature = 0.5, .top_p = 0.54}, logits), (Ids{2, 0}));
  EXPECT_EQ(drawn({.temperature = 0.5, .top_p = 0.84}, logits), (Ids{2, 0, 3}));
}

double chi_square(const std::map<int32_t, int>& counts, const std::vector<double>& probabilities,
                  int n) {
  double sum = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    const double expected = probabilities[i] * n;
    const auto found = counts.find(static_cast<int32_t>(i));
    const double count = found == counts.end() ? 0 : found->second;
    sum += (count - expected) * (count - expected) / expected;
  }
  return sum;
}

// Chi-square with 3 degrees of freedom exceeds 24.1 with probability 2.4e-5; the seeds are fixed.
TEST(Sampler, DrawsByTheDistribution) {
  const std::vector<double> p = {0.3, 0.1, 0.4, 0.2};
  const int n = 20000;
  for (const uint64_t seed : {1, 2, 3}) {
    EXPECT_LT(chi_square(draw({.seed = seed}, logits_of(p, -80), n), p, n), 24.1);
    // At temperature 2 the weights are the square roots.
    std::vector<double> flat;
    double total = 0;
    for (const double x : p) total += std::sqrt(x);
    for (const double x : p) flat.push_back(std::sqrt(x) / total);
    EXPECT_LT(chi_square(draw({.temperature = 2, .seed = seed}, logits_of(p), n), flat, n), 24.1);
    EXPECT_GT(chi_square(draw({.temperature = 2, .seed = seed}, logits_of(p), n), p, n), 24.1);
  }
}

TEST(Sampler, ExtremeTemperaturesAreLimits) {
  EXPECT_EQ(drawn({.temperature = 1e-300}, {1, 1.0001f, 0}), Ids{1});
  EXPECT_EQ(drawn({.temperature = 1e300}, {1000, 0, -1000}), (Ids{0, 1, 2}));
  // Logits far beyond what exp can take.
  EXPECT_EQ(drawn({}, {3e38f, -3e38f, 0}), Ids{0});
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(drawn({}, {-infinity, 0, 0.5f}), (Ids{1, 2}));
}

TEST(Sampler, TheSeedDecides) {
  const std::vector<float> logits(1000, 0.0f);
  const auto sequence = [&](uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.sample(logits));
    return ids;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
  const auto ids = sequence(1);
  EXPECT_GT(Ids(ids.begin(), ids.end()).size(), 30u);
}

TEST(Sampler, KeepsToTheIdsThatAreAllowed) {
  const std::vector<float> logits = {0, 1, 9, 9};
  EXPECT_EQ(drawn({.temperature = 0, .n_id = 2}, logits), Ids{1});
  EXPECT_EQ(drawn({.n_id = 2}, logits), (Ids{0, 1}));
  EXPECT_EQ(drawn({.top_k = 1, .n_id = 3}, logits), Ids{2});
  EXPECT_EQ(drawn({.temperature = 0, .n_id = 100}, logits), Ids{2});
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const double temperature : {0.0, 1.0})
    for (const std::vector<float>& logits :
         {std::vector<float>{0, nan}, {nan, 0}, {0, infinity}, {-infinity, -infinity}})
      test::expect_error([&] { drawn({.temperature = temperature}, logits); },
                         {"the model's logits are not finite"});
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  const auto refused = [](const SamplingOptions& options, const std::string& name) {
    test::expect_error([&] { Sampler{options}; }, {name + " is ", "expected"});
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double t : {-0.1, nan, infinity}) refused({.temperature = t}, "temperature");
  refused({.top_k = -1}, "top_k");
  for (const double p : {0.0, -0.5, 1.5, nan}) refused({.top_p = p}, "top_p");
  refused({.n_id = -1}, "n_id");
}

}  // namespace
}  // namespace dcformer
