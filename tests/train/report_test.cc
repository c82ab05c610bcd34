#include "dcformer/train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "dcformer/base/file.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string report_of(const std::string& folder) {
  write_report(folder);
  return read_file(folder + "/report.svg");
}

// The text between two others, the second after the first.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t first = text.find(begin);
  if (first == std::string::npos) return "";
  const size_t from = first + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

double number_of(const std::string& text) {
  size_t n = 0;
  const double number = std::stod(text, &n);
  const std::string unit = text.substr(n);
  EXPECT_TRUE(unit.empty() || unit == "k" || unit == "M") << text;
  return number * (unit == "k" ? 1e3 : unit == "M" ? 1e6 : 1);
}

struct Point {
  double x = 0;
  double y = 0;
};

// A panel of the picture, read as somebody reads it: from the numbers at its axes.
class Panel {
 public:
  Panel(const std::string& svg, const std::string& id, bool is_log = false)
      : text_(between(svg, "<g id=\"" + id + "\">", "</g>")), is_log_(is_log) {
    EXPECT_NE(text_, "") << id;
    read_ticks("x", x_);
    read_ticks("y", y_);
  }

  // The values that a line stands for.
  std::vector<Point> line(const std::string& id) const {
    std::istringstream text(
        between(between(text_, "<polyline id=\"" + id + "\"", "/>"), "points=\"", "\""));
    std::vector<Point> points;
    char comma = 0;
    for (Point p; text >> p.x >> comma >> p.y;) {
      // A number stands 4 pixels below the place that it belongs to.
      const double y = value(y_, p.y + 4);
      points.push_back({value(x_, p.x), is_log_ ? std::exp(y) : y});
    }
    return points;
  }

  std::vector<double> y_ticks() const {
    std::vector<double> ticks;
    for (const Point& tick : y_) ticks.push_back(is_log_ ? std::exp(tick.y) : tick.y);
    return ticks;
  }
  const std::string& text() const { return text_; }

 private:
  // Places (x) with their values (y).
  void read_ticks(const std::string& axis, std::vector<Point>& ticks) const {
    const std::regex pattern("<text x=\"([^\"]+)\" y=\"([^\"]+)\"[^>]* class=\"" + axis +
                             "\">([^<]+)</text>");
    for (std::sregex_iterator match(text_.begin(), text_.end(), pattern), end; match != end;
         ++match) {
      const double number = number_of((*match)[3]);
      ticks.push_back({std::stod((*match)[axis == "x" ? 1 : 2]),
                       axis == "y" && is_log_ ? std::log(number) : number});
    }
    ASSERT_GE(ticks.size(), 2u) << axis;
  }
  static double value(const std::vector<Point>& ticks, double place) {
    const double part = (place - ticks.front().x) / (ticks.back().x - ticks.front().x);
    return ticks.front().y + part * (ticks.back().y - ticks.front().y);
  }

  std::string text_;
  bool is_log_;
  std::vector<Point> x_;
  std::vector<Point> y_;
};

void expect_line(const std::vector<Point>& line, const std::vector<Point>& expected,
                 double tolerance) {
  ASSERT_EQ(line.size(), expected.size());
  for (size_t i = 0; i < line.size(); ++i) {
    EXPECT_NEAR(line[i].x, expected[i].x, 0.02) << i;
    EXPECT_NEAR(line[i].y, expected[i].y, tolerance * std::abs(expected[i].y)) << i;
  }
}

std::string step_line(int64_t step, double loss, double norm, double rate, double speed) {
  return fmt::format(
      "{{\"step\":{},\"loss\":{},\"gradient_norm\":{},\"parameter_norm\":1.0,"
      "\"learning_rate\":{},\"seconds\":1.0,\"tokens_per_second\":{}}}\n",
      step, loss, norm, rate, speed);
}

TEST(Report, DrawsTheValues) {
  const test::TemporaryFolder folder;
  replace_file(folder / "metrics.jsonl",
               step_line(1, 5.5, 20, 1e-4, 12000) + step_line(2, 4.25, 0.9, 3e-4, 15000) +
                   step_line(3, 3.125, 2.5, 2e-4, 14000) + step_line(5, 3, 0.6, 5e-5, 14500));
  replace_file(folder / "evaluations.jsonl",
               "{\"step\":2,\"loss\":4.5,\"perplexity\":90.0}\n{\"step\":4,\"loss\":2.8}\n"
               "{\"step\":5,\"loss\":2.9}\n");
  const std::string svg = report_of(folder.path());
  const Panel loss(svg, "loss");
  expect_line(loss.line("training-loss"), {{1, 5.5}, {2, 4.25}, {3, 3.125}, {5, 3}}, 0.002);
  expect_line(loss.line("validation-loss"), {{2, 4.5}, {4, 2.8}, {5, 2.9}}, 0.002);
  EXPECT_THAT(loss.text(), AllOf(HasSubstr(">3</text>"), HasSubstr(">2.9</text>"),
                                 HasSubstr(">training</text>"), HasSubstr(">validation</text>")));
  const Panel norm(svg, "gradient-norm", true);
  expect_line(norm.line("norm"), {{1, 20}, {2, 0.9}, {3, 2.5}, {5, 0.6}}, 0.01);
  const Panel rate(svg, "learning-rate");
  expect_line(rate.line("rate"), {{1, 1e-4}, {2, 3e-4}, {3, 2e-4}, {5, 5e-5}}, 0.01);
  EXPECT_EQ(rate.y_ticks(), (std::vector<double>{0, 1e-4, 2e-4, 3e-4}));
  const Panel speed(svg, "throughput");
  expect_line(speed.line("tokens"), {{1, 12000}, {2, 15000}, {3, 14000}, {5, 14500}}, 0.002);
  EXPECT_THAT(svg, HasSubstr("5 steps  ·  training loss 3  ·  validation loss 2.9, at best 2.8 "
                             "after step 4"));
}

TEST(Report, SaysTheFolderInXml) {
  const test::TemporaryFolder folder;
  const std::string name = "a<b> & \"c\"\x01\xff";
  std::filesystem::create_directory(folder / name);
  const std::string svg = report_of(folder / (name + "/"));
  EXPECT_THAT(svg, HasSubstr(">a&lt;b&gt; &amp; \"c\"\uFFFD\uFFFD</text>"));
}

TEST(Report, LeavesOutWhatIsNotThere) {
  const test::TemporaryFolder folder;
  replace_file(folder / "metrics.jsonl",
               step_line(1, 5.5, 2, 1e-4, 120) +
                   "{\"step\":2,\"loss\":null,\"gradient_norm\":null,\"learning_rate\":0.0002,"
                   "\"tokens_per_second\":110.0,\"skipped\":true}\nno JSON\n[]\n{\"loss\":9.0}\n" +
                   step_line(3, 5, 0, 1e-4, 120) + step_line(3, 50, 1, 1, 1) +
                   "{\"step\":4,\"loss\":1e200,\"gradient_norm\":\"1\"}\n{\"step\":5,\"lo");
  const std::string svg = report_of(folder.path());
  expect_line(Panel(svg, "loss").line("training-loss"), {{1, 5.5}, {3, 5}}, 0.002);
  expect_line(Panel(svg, "gradient-norm", true).line("norm"), {{1, 2}}, 0.01);
  expect_line(Panel(svg, "learning-rate").line("rate"), {{1, 1e-4}, {2, 2e-4}, {3, 1e-4}}, 0.01);
  EXPECT_THAT(svg,
              AllOf(HasSubstr("4 steps, 1 of them skipped  ·  training loss 5<"),
                    Not(HasSubstr("validation")), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST(Report, IsEmptyWithoutSteps) {
  const test::TemporaryFolder folder;
  const std::string absent = report_of(folder.path());
  EXPECT_THAT(absent, AllOf(HasSubstr("0 steps"), Not(HasSubstr("polyline")), Not(HasSubstr("nan")),
                            Not(HasSubstr("inf"))));
  replace_file(folder / "metrics.jsonl", "");
  replace_file(folder / "evaluations.jsonl", "{\"st");
  EXPECT_EQ(report_of(folder.path()), absent);
  std::filesystem::remove(folder / "metrics.jsonl");
  replace_file(folder / "evaluations.jsonl", "{\"step\":7,\"loss\":2.5}\n");
  expect_line(Panel(report_of(folder.path()), "loss").line("validation-loss"), {{7, 2.5}}, 0.002);
}

TEST(Report, HasAxesForAllSortsOfValues) {
  const test::TemporaryFolder folder;
  for (const double value : {0.0, 1e-30, 3e-5, 0.999, 1.0, 7.0, 12345.0, 9.99996e-5, 1e9, 1e99}) {
    for (const double spread : {1.0, 1 + 1e-15, 1 + 1e-5, 1.9, 1e20}) {
      const double other = std::min(value * spread, 1e100);
      replace_file(folder / "metrics.jsonl", step_line(1, value, value, value, value) +
                                                 step_line(2, other, other, other, other));
      const std::string svg = report_of(folder.path());
      EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))))
          << value << ' ' << other;
      size_t n_tick = 0;
      for (size_t at = 0; (at = svg.find("class=\"y\"", at)) != std::string::npos; ++at) ++n_tick;
      EXPECT_GE(n_tick, value > 0 ? 8u : 6u) << value << ' ' << other;
      EXPECT_LE(n_tick, 45u) << value << ' ' << other;
    }
  }
}

TEST(Report, HasABoundedNumberOfPoints) {
  const test::TemporaryFolder folder;
  std::string lines;
  for (int64_t i = 1; i <= 100000; ++i)
    lines += step_line(i, i % 2 == 0 ? 3 : 5, 1, 1e-3 * static_cast<double>(i), 100);
  replace_file(folder / "metrics.jsonl", lines);
  const std::string svg = report_of(folder.path());
  EXPECT_LT(svg.size(), 150000u);
  const Panel loss(svg, "loss");
  for (const char* id : {"training-loss-steps", "training-loss"}) {
    const auto line = loss.line(id);
    ASSERT_EQ(line.size(), 1000u) << id;
    EXPECT_NEAR(line[500].x, 50050.5, 3);
    EXPECT_NEAR(line[500].y, 4, 0.02);
  }
  const auto rates = Panel(svg, "learning-rate").line("rate");
  ASSERT_EQ(rates.size(), 1000u);
  for (const Point& p : rates) EXPECT_NEAR(p.y, p.x * 1e-3, 0.1);
}

// The mean of a straight line is the line, but at its end, where all neighbours are before it.
TEST(Report, SmoothsWithoutADelay) {
  const test::TemporaryFolder folder;
  std::string lines;
  for (int64_t i = 1; i <= 800; ++i)
    lines += step_line(i, 10 - 0.01 * static_cast<double>(i), 1, 1, 1);
  replace_file(folder / "metrics.jsonl", lines);
  const auto line = Panel(report_of(folder.path()), "loss").line("training-loss");
  ASSERT_EQ(line.size(), 800u);
  for (size_t i = 0; i < 792; ++i) EXPECT_NEAR(line[i].y, 10 - 0.01 * line[i].x, 0.005) << i;
  EXPECT_NEAR(line.back().y, 2.04, 0.005);
}

TEST(Report, NamesTheFileThatCannotBeReadOrWritten) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "metrics.jsonl");
  test::expect_error([&] { write_report(folder.path()); }, {folder / "metrics.jsonl"});
  test::expect_error([&] { write_report(folder / "none"); }, {folder / "none/report.svg"});
}

}  // namespace
}  // namespace dcformer
