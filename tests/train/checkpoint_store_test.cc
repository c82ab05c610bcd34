#include "dcformer/train/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "dcformer/base/file.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using ::testing::ElementsAre;

/// A store of a model that is next to nothing.
class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStoreTest() : parameters_(make_parameters()) {
    moments_.first = Tensor::zeros(context_, DType::f32, parameters_.values().shape());
    moments_.second = Tensor::zeros(context_, DType::f32, parameters_.values().shape());
    fs::create_directories(folder_ / "checkpoints");
  }

  static ModelConfig config() {
    ModelConfig c;
    c.vocab_size = 3;
    c.dim = 4;
    c.n_layer = 0;
    return c;
  }
  Parameters make_parameters() {
    Parameters p = Parameters::for_training(context_, parameter_specs(config()), DType::f32);
    p.initialise(context_, 1);
    return p;
  }
  CheckpointStore store(int64_t keep_last = 2) const {
    CheckpointStore s(folder_.path(), keep_last);
    s.open();
    return s;
  }
  void save(CheckpointStore& s, int64_t step, std::optional<double> loss = {}) const {
    RunState state;
    state.step = step;
    state.data_hash = "data";
    s.save(state, config(), parameters_, moments_, nullptr, loss);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "checkpoints"))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string file(const std::string& name) const { return folder_ / "checkpoints/" + name; }
  void flip_byte(const std::string& name, size_t place) const {
    std::string bytes = read_file(file(name));
    bytes.at(place) ^= 1;
    std::ofstream(file(name), std::ios::binary) << bytes;
  }

  test::TemporaryFolder folder_;
  Context context_{1};
  Parameters parameters_;
  Moments moments_;
};

TEST_F(CheckpointStoreTest, KeepsTheNewestAndTheBest) {
  CheckpointStore s = store();
  EXPECT_EQ(s.choose(""), std::nullopt);
  save(s, 1, 3.0);
  save(s, 2, 1.0);
  save(s, 3, 2.0);
  save(s, 4);
  save(s, 5, 1.0);
  EXPECT_THAT(names(), ElementsAre("step-00000002", "step-00000004", "step-00000005"));
  EXPECT_EQ(s.choose(""), folder_ / "checkpoints/step-00000005");
  save(s, 6, 0.5);
  EXPECT_THAT(names(), ElementsAre("step-00000005", "step-00000006"));
  // Another process, that keeps more.
  CheckpointStore later = store(3);
  save(later, 7, 0.7);
  EXPECT_THAT(names(), ElementsAre("step-00000005", "step-00000006", "step-00000007"));
  later.note_loss(5, 0.1);
  save(later, 8);
  save(later, 9);
  save(later, 10);
  EXPECT_THAT(names(),
              ElementsAre("step-00000005", "step-00000008", "step-00000009", "step-00000010"));
  EXPECT_EQ(read_file(folder_ / "latest"), "step-00000010\n");
}

TEST_F(CheckpointStoreTest, TheStateComesBack) {
  CheckpointStore s = store();
  RunState state;
  state.step = 12;
  state.position = 480;
  state.n_skipped = 3;
  state.n_skipped_in_a_row = 1;
  state.evaluated_step = 10;
  state.dtype = DType::bf16;
  state.data_hash = "data";
  for (float& x : moments_.first.span<float>()) x = 2;
  s.save(state, config(), parameters_, moments_, nullptr, {});
  const std::string checkpoint = s.choose("").value();
  EXPECT_EQ(to_json(verify_checkpoint(checkpoint)), to_json(state));
  Parameters read = Parameters::for_training(context_, parameter_specs(config()), DType::f32);
  Moments moments{Tensor::zeros(context_, DType::f32, moments_.first.shape()),
                  Tensor::zeros(context_, DType::f32, moments_.first.shape())};
  CheckpointStore::load(context_, checkpoint, read, moments);
  EXPECT_EQ(moments.first.data<float>()[0], 2);
  EXPECT_EQ(moments.second.data<float>()[0], 0);
  EXPECT_TRUE(std::equal(read.all()[0].value.span<float>().begin(),
                         read.all()[0].value.span<float>().end(),
                         parameters_.all()[0].value.span<float>().begin()));
}

TEST_F(CheckpointStoreTest, EveryAlteredByteIsSeen) {
  CheckpointStore s = store();
  save(s, 1);
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "config.json", "state.json"}) {
    const std::string path = std::string("step-00000001/") + name;
    const size_t size = read_file(file(path)).size();
    for (const size_t place : {size_t{0}, size / 2, size - 2}) {
      flip_byte(path, place);
      expect_error([&] { verify_checkpoint(file("step-00000001")); }, {file(path)});
      flip_byte(path, place);
    }
    EXPECT_NO_THROW(verify_checkpoint(file("step-00000001")));
  }
}

TEST_F(CheckpointStoreTest, TruncatedAndMissingFilesAreNamedAndAnOlderOneOffered) {
  CheckpointStore s = store(3);
  for (const int64_t step : {1, 2, 3}) save(s, step);
  const std::string weights = file("step-00000003/model.safetensors");
  fs::resize_file(weights, fs::file_size(weights) - 1);
  expect_error([&] { s.choose(""); },
               {weights, "truncated", "step-00000002 is whole", "--resume-from step-00000002"});
  fs::remove(weights);
  expect_error([&] { s.choose(""); }, {weights, "is missing", "step-00000002"});
  flip_byte("step-00000002/optimizer.safetensors", 99);
  expect_error([&] { s.choose(""); }, {weights, "--resume-from step-00000001"});
  expect_error([&] { s.choose("step-00000002"); }, {"optimizer.safetensors: is altered"});
  fs::resize_file(file("step-00000001/state.json"), 10);
  expect_error([&] { s.choose(""); }, {weights, "no other checkpoint is whole"});
  expect_error([&] { s.choose("step-00000007"); }, {"holds no checkpoint 'step-00000007'"});
  expect_error([&] { s.choose("../x"); }, {"holds no checkpoint '../x'"});
  replace_file(folder_ / "latest", "../../etc\n");
  expect_error([&] { s.choose(""); }, {"latest", "../../etc"});
}

TEST_F(CheckpointStoreTest, GoingBackLeavesTheFutureBehind) {
  CheckpointStore s = store(3);
  for (const int64_t step : {1, 2, 3}) save(s, step, 1.0 / static_cast<double>(step));
  EXPECT_EQ(s.choose("step-00000001"), file("step-00000001"));
  // Choosing alone changes nothing.
  EXPECT_EQ(read_file(folder_ / "latest"), "step-00000003\n");
  s.make_latest(1);
  EXPECT_EQ(read_file(folder_ / "latest"), "step-00000001\n");
  // The next save: steps 2 and 3 are of a future that is no more.
  save(s, 2, 7.0);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(CheckpointStoreTest, OnlyItsOwnListIsRemoved) {
  fs::create_directories(file("step-00000001"));
  fs::create_directories(file("step-00000009"));
  fs::create_directories(file("notes.partial"));
  CheckpointStore s = store(1);
  for (const int64_t step : {2, 3, 4}) save(s, step);
  EXPECT_THAT(names(),
              ElementsAre("notes.partial", "step-00000001", "step-00000004", "step-00000009"));
  expect_error([&] { save(s, 9); }, {file("step-00000009"), "none of this run's"});
}

TEST_F(CheckpointStoreTest, LeftoversOfAnInterruptedSaveGo) {
  CheckpointStore s = store();
  save(s, 1);
  save(s, 2);
  fs::create_directories(file("step-00000002.partial"));
  fs::create_directories(file("step-00000001.removed"));
  store();
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(CheckpointStoreTest, ADamagedListIsAFault) {
  for (const char* text :
       {"", "[]", "{", R"({"checkpoints": 1})", R"({"checkpoints": [1]})",
        R"({"checkpoints": [{"step": -1}]})", R"({"checkpoints": [{"step": 1, "loss": "x"}]})"}) {
    replace_file(folder_ / "checkpoints.json", text);
    expect_error([&] { store(); }, {"checkpoints.json"});
  }
}

TEST_F(CheckpointStoreTest, AStateOfAnotherVersionIsAFault) {
  CheckpointStore s = store();
  save(s, 1);
  const std::string path = file("step-00000001/state.json");
  for (const char* text : {"{}", R"({"version": 1, "step": 3})", "[]", ""}) {
    replace_file(path, text);
    expect_error([&] { verify_checkpoint(file("step-00000001")); }, {"state.json"});
  }
}

}  // namespace
}  // namespace dcformer
