#include "dcformer/model/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dcformer/io/json_file.h"
#include "tests/io/expect_error.h"

namespace dcformer {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

ModelConfig parse(const std::string& text, UnknownKeys unknown = UnknownKeys::error) {
  return parse_model_config(parse_json(text, "text"), "run.json: model", unknown);
}

// A faulty configuration, and what its message must say besides the place.
void expect_refused(const std::string& text, const std::vector<std::string>& parts) {
  std::vector<std::string> all = {"run.json: model"};
  all.insert(all.end(), parts.begin(), parts.end());
  expect_error([&] { parse(text); }, all);
}

TEST(ModelConfig, DefaultsAreThePublishedOnes) {
  const ModelConfig c = parse("{}");
  EXPECT_EQ(c.vocab_size, 32000);
  EXPECT_EQ(c.dim, 2560);
  EXPECT_EQ(c.n_layer, 32);
  EXPECT_EQ(c.n_head, 32);
  EXPECT_EQ(c.n_kv_head, 32);
  EXPECT_EQ(c.head_dim, 80);
  EXPECT_EQ(c.intermediate_size, 6912);
  EXPECT_EQ(c.block_size, 2048);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.qk_norm_eps, 1e-6);
  EXPECT_FALSE(c.use_qk_norm);
  EXPECT_EQ(c.rope_base, 500000);
  EXPECT_EQ(c.rotary_pct, 1);
  EXPECT_THAT(c.windows, ElementsAre(256, 0));
  EXPECT_FALSE(c.mgate);
  EXPECT_EQ(c.mgate_dim, 44);
  EXPECT_EQ(c.gelu, GeluKind::erf);
  EXPECT_TRUE(c.use_dcmha && c.pre_compose && c.post_compose && c.query_compose && c.key_compose);
  EXPECT_TRUE(c.gates && c.dynamic_compose);
  EXPECT_FALSE(c.base_projection);
  EXPECT_EQ(c.n_group, 1);
  EXPECT_EQ(c.rank, 2);
}

// Every key away from its default, and back through to_json.
TEST(ModelConfig, ReadsEveryKey) {
  const ModelConfig c = parse(R"({
    "model_type": "dcformer", "vocab_size": 61, "dim": 48, "n_layer": 3, "n_head": 6,
    "n_local_heads": 2, "head_dim": 16, "intermediate_size": 40, "block_size": 99,
    "norm_eps": 1e-4, "qk_norm_eps": 1e-3, "use_qk_norm": true, "rope_base": 10000,
    "rotary_pct": 0.5, "windows": [4, null, 7], "mgate": true, "mgate_dim": 8, "gelu": "tanh",
    "use_dcmha": true, "n_groups": 3, "rank": 1, "pre_compose": false, "post_compose": false,
    "query_compose": false, "key_compose": false, "gates": false, "dynamic_compose": false,
    "base_projection": true, "norm": "rms", "position": "rope", "use_parallel_residual": false,
    "use_linear_bias": false, "tie_word_embeddings": false, "dropout": 0.25, "dynamic_dropout": 0.5})");
  const auto check = [](const ModelConfig& m) {
    EXPECT_EQ(m.vocab_size, 61);
    EXPECT_EQ(m.dim, 48);
    EXPECT_EQ(m.n_layer, 3);
    EXPECT_EQ(m.n_head, 6);
    EXPECT_EQ(m.n_kv_head, 2);
    EXPECT_EQ(m.head_dim, 16);
    EXPECT_EQ(m.intermediate_size, 40);
    EXPECT_EQ(m.block_size, 99);
    EXPECT_EQ(m.norm_eps, 1e-4);
    EXPECT_EQ(m.qk_norm_eps, 1e-3);
    EXPECT_TRUE(m.use_qk_norm);
    EXPECT_EQ(m.rope_base, 10000);
    EXPECT_EQ(m.rotary_dim(), 8);
    EXPECT_THAT(m.windows, ElementsAre(4, 0, 7));
    EXPECT_TRUE(m.mgate);
    EXPECT_EQ(m.mgate_dim, 8);
    EXPECT_EQ(m.gelu, GeluKind::tanh);
    EXPECT_EQ(m.n_group, 3);
    EXPECT_EQ(m.rank, 1);
    EXPECT_TRUE(m.use_dcmha && m.base_projection);
    EXPECT_FALSE(m.pre_compose || m.post_compose || m.query_compose || m.key_compose);
    EXPECT_FALSE(m.gates || m.dynamic_compose);
  };
  check(c);
  check(parse_model_config(to_json(c), "written", UnknownKeys::error));
}

TEST(ModelConfig, WhatIsWrittenIsReadBack) {
  for (const char* text :
       {"{}", R"({"use_dcmha": false})", R"({"query_wise": true})", R"({"window_size": null})",
        R"({"window_type": "LGL6", "window_size": 8})", R"({"n_local_heads": 8})",
        R"({"key_compose": false, "mgate": true, "intermediate_size": 88})"}) {
    const nlohmann::json written = to_json(parse(text));
    EXPECT_EQ(to_json(parse_model_config(written, "written", UnknownKeys::error)), written) << text;
  }
}

TEST(ModelConfig, WindowsOfTheRepeatingBlock) {
  EXPECT_THAT(parse(R"({"window_size": 8})").windows, ElementsAre(8, 0));
  EXPECT_THAT(parse(R"({"window_size": null})").windows, ElementsAre(0));
  EXPECT_THAT(parse(R"({"window_size": null, "window_type": "LGLL"})").windows, ElementsAre(0));
  EXPECT_THAT(parse(R"({"window_type": null})").windows, ElementsAre(256, 0));
  EXPECT_THAT(parse(R"({"window_type": "LG", "window_size": 8})").windows, ElementsAre(8, 0));
  EXPECT_THAT(parse(R"({"window_type": "LGLL", "window_size": 8})").windows,
              ElementsAre(8, 0, 8, 8));
  EXPECT_THAT(parse(R"({"window_type": "LGL6", "window_size": 8})").windows,
              ElementsAre(8, 0, 8, 8, 8, 8, 8, 8));
  // The list wins.
  EXPECT_THAT(parse(R"({"windows": [3], "window_size": 8, "window_type": "LGLL"})").windows,
              ElementsAre(3));
  // What is not in use is not validated.
  EXPECT_THAT(parse(R"({"windows": [3], "window_size": 0, "window_type": "GL"})").windows,
              ElementsAre(3));
  EXPECT_EQ(parse(R"({"use_dcmha": false, "rank": 9, "n_groups": 5})").n_group, 1);
  const ModelConfig c = parse(R"({"windows": [3, null, 5]})");
  EXPECT_EQ(c.window(0), 3);
  EXPECT_EQ(c.window(4), 0);
  EXPECT_EQ(c.window(5), 5);
}

TEST(ModelConfig, RefusesWindowsThatAreNone) {
  expect_refused(R"({"window_size": 0})", {".window_size", "from 1", "0"});
  expect_refused(R"({"window_size": -1})", {".window_size"});
  expect_refused(R"({"window_size": "8"})", {".window_size", "\"8\""});
  expect_refused(R"({"window_type": "GL"})", {".window_type", "LG, LGLL, LGL6", "GL"});
  expect_refused(R"({"windows": [8, 0]})", {".windows", "at least 1", "[8,0]"});
  for (const char* list : {"[]", "8", "[-1]", "[1.5]", "[true]", "[\"8\"]", "[[8]]",
                           "[9223372036854775807]", "[18446744073709551615]"})
    expect_refused(fmt::format(R"({{"windows": {}}})", list), {".windows", list});
}

TEST(ModelConfig, DefaultsThatFollowFromOthers) {
  EXPECT_EQ(parse(R"({"dim": 64, "n_head": 4})").head_dim, 16);
  EXPECT_EQ(parse(R"({"dim": 64, "n_head": 4, "n_local_heads": -1})").n_kv_head, 4);
  // 2/3·4·dim rounded up to a multiple of 256: 2730 and 256 exactly.
  EXPECT_EQ(parse(R"({"dim": 1024, "n_head": 16})").intermediate_size, 2816);
  EXPECT_EQ(parse(R"({"dim": 96, "n_head": 4})").intermediate_size, 256);
  EXPECT_EQ(parse(R"({"dim": 97, "n_head": 97, "rotary_pct": 0})").intermediate_size, 512);
  EXPECT_EQ(parse(R"({"intermediate_size": null})").intermediate_size, 6912);
  // query_wise means no key side, unless the key side is named.
  EXPECT_FALSE(parse(R"({"query_wise": true})").key_compose);
  EXPECT_TRUE(parse(R"({"query_wise": true})").query_compose);
  EXPECT_TRUE(parse(R"({"query_wise": true, "key_compose": true})").key_compose);
}

TEST(ModelConfig, RefusesImpossibleShapes) {
  expect_refused(R"({"dim": 64, "n_head": 5})", {".n_head: 5 does not divide dim 64"});
  expect_refused(R"({"dim": 64, "n_head": 4, "n_local_heads": 3})",
                 {".n_local_heads: 3 does not divide n_head 4"});
  expect_refused(R"({"n_local_heads": 0})", {".n_local_heads"});
  expect_refused(R"({"n_local_heads": -2})", {".n_local_heads"});
  expect_refused(R"({"dim": 64, "n_head": 4, "n_groups": 3})",
                 {".n_groups: 3 does not divide n_head 4"});
  expect_refused(R"({"dim": 12, "n_head": 4})", {"rotary width 3"});
  expect_refused(R"({"head_dim": 10, "rotary_pct": 0.5})", {"rotary width 5"});
  expect_refused(R"({"mgate": true, "mgate_dim": 5, "intermediate_size": 32})",
                 {".mgate_dim: 5 does not divide intermediate_size 32"});
}

TEST(ModelConfig, RefusesWrongTypesAndRanges) {
  for (const char* key : {"vocab_size", "dim", "n_head", "head_dim", "intermediate_size",
                          "block_size", "n_groups", "rank"})
    for (const char* value : {"0", "-1", "1.5", "\"8\"", "true", "[8]", "1e30"})
      expect_refused(fmt::format(R"({{"{}": {}}})", key, value),
                     {fmt::format(".{}", key), "whole number"});
  for (const char* key : {"use_qk_norm", "mgate", "use_dcmha", "pre_compose", "post_compose",
                          "query_compose", "key_compose", "query_wise", "gates", "dynamic_compose",
                          "base_projection", "tie_word_embeddings", "use_linear_bias"})
    for (const char* value : {"0", "\"true\"", "[]"})
      expect_refused(fmt::format(R"({{"{}": {}}})", key, value),
                     {fmt::format(".{}: expected true or false", key), value});
  for (const char* key : {"norm_eps", "qk_norm_eps", "rotary_pct"})
    for (const char* value : {"-0.1", "1.1", "\"x\"", "true"})
      expect_refused(fmt::format(R"({{"{}": {}}})", key, value),
                     {fmt::format(".{}", key), "a number from 0 to 1"});
  for (const char* key : {"dropout", "dynamic_dropout"})
    for (const char* value : {"-0.1", "1", "\"x\"", "true"})
      expect_refused(fmt::format(R"({{"{}": {}}})", key, value),
                     {fmt::format(".{}", key), "a number from 0 to 0.99"});
  expect_refused(R"({"rope_base": 0.5})", {".rope_base"});
  expect_refused(R"({"gelu": "relu"})", {".gelu", "erf, tanh"});
  expect_refused(R"({"rank": 9})", {".rank", "from 1 to 8"});
  for (const char* text : {"[]", "3", "\"x\"", "null"})
    expect_error([&] { parse(text); }, {"run.json: model: expected a JSON object"});
}

TEST(ModelConfig, RefusesWhatIsNotThereYet) {
  expect_refused(R"({"model_type": "dcpythia"})", {".model_type", "dcpythia"});
  expect_refused(R"({"norm": "layer"})", {".norm"});
  expect_refused(R"({"use_parallel_residual": true})", {".use_parallel_residual"});
  expect_refused(R"({"use_linear_bias": true})", {".use_linear_bias"});
  expect_refused(R"({"tie_word_embeddings": true})", {".tie_word_embeddings"});
  expect_refused(R"({"position": "learned"})", {".position"});
}

TEST(ModelConfig, UnknownKeysAreFaultsInRunFilesOnly) {
  expect_refused(R"({"n_heads": 4})", {"unknown key 'n_heads'; did you mean 'n_head'?"});
  expect_refused(R"({"window": 4})", {"unknown key 'window'; did you mean 'windows'?"});
  expect_refused(R"({"initializer_range": 4})", {"unknown key 'initializer_range'"});
  EXPECT_EQ(parse(R"({"n_heads": 4, "n_head": 64})", UnknownKeys::warn).n_head, 64);
  // Published files carry these; they say nothing about the mathematics, whatever they hold.
  EXPECT_NO_THROW(parse(R"({"architectures": 1, "torch_dtype": [], "bos_token_id": "x",
    "eos_token_id": null, "q_chunk_size": 0, "auto_map": {}, "is_training": 3, "prefill_pad": 0,
    "pad_token_id": -1, "use_gradient_checkpointing": 1, "transformers_version": 4})"));
}

TEST(ModelConfig, AKeyOfNoUseIsNotValidated) {
  EXPECT_NO_THROW(parse(R"({"mgate_dim": "none"})"));
  EXPECT_NO_THROW(parse(R"({"mgate": false, "mgate_dim": 7, "intermediate_size": 32})"));
  EXPECT_NO_THROW(parse(R"({"use_dcmha": false, "n_groups": 3})"));
}

}  // namespace
}  // namespace dcformer
