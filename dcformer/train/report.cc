#include "dcformer/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/utf8.h"
#include "dcformer/train/metrics_log.h"

namespace dcformer {
namespace {

constexpr size_t kMostPoints = 1000;
constexpr size_t kMostMarkers = 60;
// What is beyond it is left out, so that no sum of two becomes infinite.
constexpr double kLargest = 1e100;
constexpr const char* kBlue = "#1f5fa8";
constexpr const char* kRed = "#c8384b";

// A step, and a value of at most kLargest either way.
struct Point {
  double x = 0;
  double y = 0;
};
using Curve = std::vector<Point>;

struct RunCurves {
  Curve loss;
  Curve gradient_norm;
  Curve learning_rate;
  Curve tokens_per_second;
  Curve validation_loss;
  double last_step = 0;
  int64_t n_skipped = 0;
};

void append(Curve& curve, double step, const nlohmann::json& line, const char* key) {
  const auto value = line.find(key);
  if (value == line.end() || !value->is_number()) return;
  const auto number = value->get<double>();
  if (std::abs(number) <= kLargest) curve.push_back({step, number});
}

RunCurves read_curves(const std::string& run_folder) {
  RunCurves run;
  const auto read = [&](const char* name, const auto& f) {
    const std::string path = run_folder + name;
    if (!std::filesystem::exists(path)) return;
    errno = 0;
    std::ifstream file(path);
    require(file.good(), "{}: {}", path, std::strerror(errno == 0 ? EIO : errno));
    for_each_step_line(file, INT64_MAX,
                       [&](int64_t step, const std::string&, const nlohmann::json& line) {
                         f(static_cast<double>(step), line);
                       });
    require(!file.bad(), "{}: read error", path);
  };
  read("/metrics.jsonl", [&](double step, const nlohmann::json& line) {
    append(run.loss, step, line, "loss");
    append(run.gradient_norm, step, line, "gradient_norm");
    append(run.learning_rate, step, line, "learning_rate");
    append(run.tokens_per_second, step, line, "tokens_per_second");
    run.last_step = step;
    if (line.contains("skipped")) ++run.n_skipped;
  });
  read("/evaluations.jsonl", [&](double step, const nlohmann::json& line) {
    append(run.validation_loss, step, line, "loss");
    run.last_step = std::max(run.last_step, step);
  });
  return run;
}

// How many points on either side of a point its running mean takes in.
size_t mean_radius(const Curve& curve) { return std::min<size_t>(curve.size() / 100, 100); }

// The mean over each point's neighbours; as many on both sides of the early ones, so that a steep
// beginning stays where it is.
Curve running_mean(const Curve& curve) {
  std::vector<double> sums = {0};
  for (const Point& p : curve) sums.push_back(sums.back() + p.y);
  Curve result;
  result.reserve(curve.size());
  for (size_t i = 0; i < curve.size(); ++i) {
    const size_t radius = std::min(mean_radius(curve), i);
    const size_t begin = i - radius;
    const size_t end = std::min(i + radius + 1, curve.size());
    result.push_back({curve[i].x, (sums[end] - sums[begin]) / static_cast<double>(end - begin)});
  }
  return result;
}

// At most kMostPoints, each the mean of its stretch.
Curve thin_out(const Curve& curve) {
  if (curve.size() <= kMostPoints) return curve;
  Curve result;
  for (size_t i = 0; i < kMostPoints; ++i) {
    const size_t begin = i * curve.size() / kMostPoints;
    const size_t end = (i + 1) * curve.size() / kMostPoints;
    Point sum;
    for (size_t j = begin; j < end; ++j) sum = {sum.x + curve[j].x, sum.y + curve[j].y};
    const auto n = static_cast<double>(end - begin);
    result.push_back({sum.x / n, sum.y / n});
  }
  return result;
}

// A number in the notation that suits `scale`: 1.5M, 20k, 0.25, 3e-4.
std::string number_text(double value, double scale, int digits) {
  if (value == 0) return "0";
  if (scale >= 1e4 && scale < 1e15) {
    const auto [unit, suffix] = scale >= 1e9   ? std::pair(1e9, "G")
                                : scale >= 1e6 ? std::pair(1e6, "M")
                                               : std::pair(1e3, "k");
    return fmt::format("{:.{}g}{}", value / unit, digits, suffix);
  }
  if (scale >= 2e-3 && scale < 1e4) return fmt::format("{:.{}g}", value, digits);
  // The little more keeps what rounds to 10 from being written so.
  const double exponent = std::floor(std::log10(std::abs(value)) + 2e-5);
  return fmt::format("{:.{}g}e{}", value / std::pow(10, exponent), digits, exponent);
}

std::string number_text(double value) { return number_text(value, std::abs(value), 4); }

// Text for XML 1.0; what it cannot hold becomes U+FFFD.
std::string xml_text(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Utf8Step step = utf8_front(text);
    const std::string_view c = text.substr(0, step.length);
    text.remove_prefix(step.length);
    const bool is_control = static_cast<unsigned char>(c[0]) < 0x20;
    if (step.front != Utf8Front::character || is_control || c == "\uFFFE" || c == "\uFFFF")
      result += "\uFFFD";
    else if (c == "&")
      result += "&amp;";
    else if (c == "<")
      result += "&lt;";
    else if (c == ">")
      result += "&gt;";
    else
      result += c;
  }
  return result;
}

// The least of 1, 2 and 5 times a power of ten that divides `range` into at most `n` parts.
double nice_step(double range, double n) {
  const double power = std::pow(10, std::floor(std::log10(range / n)));
  for (const double digit : {1.0, 2.0, 5.0})
    if (digit * power * n >= range * (1 - 1e-9)) return digit * power;
  return 10 * power;
}

// An axis: values from `low` to `high` stand between the pixels `begin` and `end`.
struct Axis {
  double low = 0;
  double high = 1;
  bool is_log = false;
  std::vector<std::pair<double, std::string>> ticks;
  double begin = 0;
  double end = 0;

  double place(double value) const {
    const double part =
        is_log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return begin + part * (end - begin);
  }
};

// The steps, from 0, with at most about `n` ticks.
Axis step_axis(double last, double n) {
  Axis axis;
  axis.high = std::max(last, 1.0);
  const double step = std::max(nice_step(axis.high, n), 1.0);
  for (double i = 0; i * step <= axis.high; ++i)
    axis.ticks.emplace_back(i * step, number_text(i * step, axis.high, 8));
  return axis;
}

// From one tick to another, around all values, with about `n` ticks.
Axis linear_axis(double low, double high, double n) {
  const double largest = std::max(std::abs(low), std::abs(high));
  if (high - low <= 1e-6 * largest) {
    low -= 0.1 * largest;
    high += 0.1 * largest;
  }
  if (low == high) high = 1;
  const double step = nice_step(high - low, n);
  const double first = std::floor(low / step + 1e-9);
  const double last = std::ceil(high / step - 1e-9);
  Axis axis;
  axis.low = first * step;
  axis.high = last * step;
  for (double i = first; i <= last; ++i)
    axis.ticks.emplace_back(
        i * step, number_text(i * step, std::max(std::abs(axis.low), std::abs(axis.high)), 8));
  return axis;
}

// The same for values above 0: ticks at powers of ten, and at 2 and 5 times these where there are
// few.
Axis log_axis(double low, double high) {
  const double first = std::floor(std::log10(low) + 1e-9);
  const double n_decade = std::log10(high) - first;
  const double stride = std::max(std::ceil(n_decade / 6), 1.0);
  const size_t n_digit = n_decade <= 2 ? 3 : 1;
  std::vector<double> marks;
  for (size_t i = 0; marks.size() < 2 || marks.back() < high * (1 - 1e-9); ++i) {
    const double exponent = first + stride * static_cast<double>(i / n_digit);
    const double mark = std::array{1.0, 2.0, 5.0}[i % n_digit] * std::pow(10, exponent);
    if (marks.size() == 1 && mark <= low * (1 + 1e-9)) marks.clear();
    marks.push_back(mark);
  }
  Axis axis;
  axis.is_log = true;
  axis.low = marks.front();
  axis.high = marks.back();
  for (const double mark : marks) axis.ticks.emplace_back(mark, number_text(mark, mark, 8));
  return axis;
}

// One line of a panel.
struct Line {
  std::string id;
  Curve curve;
  const char* colour = kBlue;
  double width = 1.8;
  double opacity = 1;
  // In the legend.
  std::string name;
  // Its last value stands at its end; none: not said.
  std::optional<double> last;
};

// Every step pale, and the running mean over it; one line where these are the same.
std::vector<Line> step_lines(const std::string& id, const Curve& curve) {
  std::vector<Line> lines;
  if (curve.empty()) return lines;
  const Curve mean = running_mean(curve);
  const bool has_mean = mean_radius(curve) > 0;
  if (has_mean)
    lines.push_back({id + "-steps", thin_out(curve), kBlue, 1, 0.3, "training, each step", {}});
  lines.push_back({id, thin_out(mean), kBlue, 1.8, 1,
                   has_mean ? "training, running mean" : "training", mean.back().y});
  return lines;
}

struct Panel {
  std::string id;
  std::string title;
  std::string unit;
  std::vector<Line> lines;
  bool is_log = false;
  bool from_zero = false;
  bool has_legend = false;
};

// The plot's own rectangle, without titles and numbers.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

// An SVG file that grows.
class Svg {
 public:
  Svg(double width, double height) {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\" "
        "fill=\"#555b66\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
        width, height);
  }

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void text(double x, double y, const char* anchor, std::string_view text,
            std::string_view more = "") {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
        xml_text(text));
  }
  void line(double x1, double y1, double x2, double y2, const char* colour) {
    add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1,
        x2, y2, colour);
  }

  std::string finish() && { return std::move(text_) + "</svg>\n"; }

 private:
  std::string text_;
};

void draw_line(Svg& svg, const Line& line, const Axis& x, const Axis& y) {
  svg.add(
      "<polyline id=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
      "stroke-opacity=\"{}\" stroke-linejoin=\"round\" stroke-linecap=\"round\" points=\"",
      line.id, line.colour, line.width, line.opacity);
  for (const Point& p : line.curve) svg.add("{:.2f},{:.2f} ", x.place(p.x), y.place(p.y));
  svg.add("\"/>\n");
  const bool has_markers = line.colour == kRed && line.curve.size() <= kMostMarkers;
  if (!has_markers && line.curve.size() > 1) return;
  for (const Point& p : line.curve)
    svg.add("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"2.6\" fill=\"{}\"/>\n", x.place(p.x),
            y.place(p.y), line.colour);
}

// The last values beside the plot, moved apart where they would overlap.
void draw_last_values(Svg& svg, const std::vector<Line>& lines, const Box& box, const Axis& y) {
  std::vector<std::pair<double, const Line*>> labels;
  for (const Line& line : lines)
    if (line.last) labels.emplace_back(y.place(*line.last), &line);
  std::sort(labels.begin(), labels.end());
  for (size_t i = 1; i < labels.size(); ++i) {
    const double overlap = 13 - (labels[i].first - labels[i - 1].first);
    if (overlap <= 0) continue;
    labels[i - 1].first -= overlap / 2;
    labels[i].first += overlap / 2;
  }
  for (const auto& [place, line] : labels)
    svg.text(box.right() + 6, place + 4, "start", number_text(*line->last),
             fmt::format(" font-weight=\"bold\" fill=\"{}\"", line->colour));
}

// Above the plot, at its right; the widths of the names are estimates.
void draw_legend(Svg& svg, const std::vector<Line>& lines, const Box& box) {
  const auto width = [](const Line& line) {
    return 44 + 5.7 * static_cast<double>(line.name.size());
  };
  double x = box.right() + 16;
  for (const Line& line : lines) x -= width(line);
  for (const Line& line : lines) {
    const double y = box.top - 16;
    svg.add(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"{:.1f}\" stroke-opacity=\"{}\"/>\n",
        x, y, x + 20, y, line.colour, line.width + 0.6, line.opacity);
    svg.text(x + 26, y + 4, "start", line.name);
    x += width(line);
  }
}

Axis value_axis(const Panel& panel, double n) {
  double low = panel.from_zero ? 0 : std::numeric_limits<double>::infinity();
  double high = -low;
  for (const Line& line : panel.lines)
    for (const Point& p : line.curve) {
      low = std::min(low, p.y);
      high = std::max(high, p.y);
    }
  return panel.is_log ? log_axis(low, high) : linear_axis(low, high, n);
}

void draw_panel(Svg& svg, const Panel& panel, const Box& box, double last_step) {
  svg.add("<g id=\"{}\">\n", panel.id);
  svg.text(box.left, box.top - 12, "start", panel.title,
           " font-size=\"13\" font-weight=\"bold\" fill=\"#22262e\"");
  const bool is_empty = std::all_of(panel.lines.begin(), panel.lines.end(),
                                    [](const Line& l) { return l.curve.empty(); });
  if (is_empty) {
    svg.add(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#f6f7f9\"/>\n",
        box.left, box.top, box.width, box.height);
    svg.text(box.left + box.width / 2, box.top + box.height / 2, "middle", "no values yet");
    svg.add("</g>\n");
    return;
  }
  Axis x = step_axis(last_step, 1 + box.width / 70);
  x.begin = box.left;
  x.end = box.right();
  Axis y = value_axis(panel, box.height / 36);
  y.begin = box.bottom();
  y.end = box.top;
  for (const auto& [value, text] : y.ticks) {
    svg.line(box.left, y.place(value), box.right(), y.place(value), "#e4e7ec");
    svg.text(box.left - 7, y.place(value) + 4, "end", text, " class=\"y\"");
  }
  svg.line(box.left, box.bottom(), box.right(), box.bottom(), "#8a919e");
  for (const auto& [value, text] : x.ticks) {
    svg.line(x.place(value), box.bottom(), x.place(value), box.bottom() + 4, "#8a919e");
    svg.text(x.place(value), box.bottom() + 17, "middle", text, " class=\"x\"");
  }
  svg.text(box.left + box.width / 2, box.bottom() + 34, "middle", "step");
  const double unit_x = box.left - 46;
  const double unit_y = box.top + box.height / 2;
  svg.text(unit_x, unit_y, "middle", panel.unit,
           fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", unit_x, unit_y));
  for (const Line& line : panel.lines) draw_line(svg, line, x, y);
  draw_last_values(svg, panel.lines, box, y);
  if (panel.has_legend) draw_legend(svg, panel.lines, box);
  svg.add("</g>\n");
}

std::string folder_name(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// The run in a line: how far it has come, and its losses.
std::string summary(const RunCurves& run) {
  std::string text = fmt::format("{:.0f} step{}", run.last_step, run.last_step == 1 ? "" : "s");
  if (run.n_skipped > 0) text += fmt::format(", {} of them skipped", run.n_skipped);
  if (!run.loss.empty())
    text += fmt::format("  ·  training loss {}", number_text(running_mean(run.loss).back().y));
  if (!run.validation_loss.empty()) {
    const auto best = std::min_element(run.validation_loss.begin(), run.validation_loss.end(),
                                       [](const Point& a, const Point& b) { return a.y < b.y; });
    text += fmt::format("  ·  validation loss {}, at best {} after step {:.0f}",
                        number_text(run.validation_loss.back().y), number_text(best->y), best->x);
  }
  return text;
}

}  // namespace

void write_report(const std::string& run_folder) {
  const RunCurves run = read_curves(run_folder);
  Panel loss{"loss", "Loss", "nats per token", step_lines("training-loss", run.loss), false,
             false,  true};
  if (!run.validation_loss.empty())
    loss.lines.push_back({"validation-loss", thin_out(run.validation_loss), kRed, 1.8, 1,
                          "validation", run.validation_loss.back().y});
  Curve positive_norm;
  std::copy_if(run.gradient_norm.begin(), run.gradient_norm.end(),
               std::back_inserter(positive_norm),
               [](const Point& p) { return p.y >= 1 / kLargest; });
  Panel rate{"learning-rate", "Learning rate", "learning rate", {}, false, true, false};
  if (!run.learning_rate.empty())
    rate.lines.push_back(
        {"rate", thin_out(run.learning_rate), kBlue, 1.8, 1, "", run.learning_rate.back().y});

  Svg svg(1000, 728);
  svg.text(62, 38, "start", shorten_utf8(folder_name(run_folder), 70),
           " font-size=\"20\" font-weight=\"bold\" fill=\"#22262e\"");
  svg.text(62, 60, "start", summary(run), " font-size=\"12.5\"");
  draw_panel(svg, loss, {62, 108, 874, 300}, run.last_step);
  draw_panel(svg,
             {"gradient-norm", "Gradient norm", "L2 norm, before clipping",
              step_lines("norm", positive_norm), true, false, false},
             {62, 494, 214, 180}, run.last_step);
  draw_panel(svg, rate, {392, 494, 214, 180}, run.last_step);
  draw_panel(svg,
             {"throughput", "Throughput", "tokens per second",
              step_lines("tokens", run.tokens_per_second), false, true, false},
             {722, 494, 214, 180}, run.last_step);
  replace_file(run_folder + "/report.svg", std::move(svg).finish());
}

}  // namespace dcformer
