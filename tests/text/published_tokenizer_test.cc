// Tokenizers of published models against what the library tokenizers gives for them. The files lie
// outside the repository (their licences differ): without them these tests are skipped.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dcformer/base/file.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/text_file.h"
#include "dcformer/text/huggingface_tokenizer.h"
#include "dcformer/text/stream_decoder.h"
#include "tests/support/temporary_folder.h"
#include "tests/text/sha256.h"

namespace dcformer {
namespace {

namespace fs = std::filesystem;

const std::string kShared = DCFORMER_SOURCE_DIR "/../shared";

struct Published {
  std::string name;
  /// vocab.json and merges.txt alone.
  bool older_form = false;
};

class PublishedTokenizer : public ::testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    if (!fs::exists(files()))
      GTEST_SKIP() << files() << " is missing: the published tokenizers are not at hand";
    tokenizer_ = load();
  }

  std::string files() const { return kShared + "/fixtures/tokenizers/" + GetParam().name; }

  std::unique_ptr<Tokenizer> load() const {
    const std::string packed = files() + "/tokenizer.json.gz";
    if (!GetParam().older_form && !fs::exists(packed)) return load_tokenizer(files());
    const test::TemporaryFolder folder;
    if (GetParam().older_form) {
      for (const char* name : {"vocab.json", "merges.txt"})
        fs::copy(files() + "/" + name, folder / name);
    } else {
      replace_file(folder / "tokenizer.json", read_text_file(packed));
    }
    return load_tokenizer(folder.path());
  }

  void expect_whole_text(const std::string& name) const {
    const std::string path = kShared + "/data/" + name + ".txt.gz";
    if (!fs::exists(path)) GTEST_SKIP() << path << " is missing";
    const nlohmann::json expected = read_json_file(files() + "/" + name + ".json");
    const std::vector<int32_t> ids = tokenizer_->encode_with(read_text_file(path), {true, true});
    EXPECT_EQ(ids.size(), expected["tokens"].get<size_t>());
    // Ids lie in memory as the file's hash wants them.
    static_assert(std::endian::native == std::endian::little);
    const std::string_view bytes(reinterpret_cast<const char*>(ids.data()), 4 * ids.size());
    EXPECT_EQ(test::sha256(bytes), expected["sha256_int32_le"]);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(PublishedTokenizer, GivesTheExpectedLines) {
  std::ifstream lines(files() + "/expected.jsonl");
  size_t n = 0;
  for (std::string line; std::getline(lines, line); ++n) {
    const nlohmann::json expected = parse_json(line, "expected.jsonl");
    const auto text = expected["text"].get<std::string>();
    const auto ids = expected["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->encode_with(text, {false, true}), ids) << line;
    EXPECT_EQ(tokenizer_->encode_with(text, {true, true}), expected["ids_with_special"]) << line;
    const auto decoded = expected["decoded"].get<std::string>();
    EXPECT_EQ(tokenizer_->decode(ids, {true}), decoded) << line;
    StreamDecoder stream(*tokenizer_, {true});
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), decoded) << line;
  }
  EXPECT_GT(n, 40u);
}

TEST_P(PublishedTokenizer, EncodesAusten) { expect_whole_text("austen"); }
TEST_P(PublishedTokenizer, EncodesMoby) { expect_whole_text("moby"); }

INSTANTIATE_TEST_SUITE_P(Files, PublishedTokenizer,
                         ::testing::Values(Published{"gpt2"}, Published{"gpt2", true},
                                           Published{"qwen3"}, Published{"byte-fallback"}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (info.param.older_form ? "_vocab_and_merges" : "");
                         });

TEST(Sha256, KnowsThePublishedExamples) {
  EXPECT_EQ(test::sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(test::sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

}  // namespace
}  // namespace dcformer
