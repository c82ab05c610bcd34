#include "dcformer/text/byte_level.h"

#include <array>
#include <cstdint>

#include "dcformer/base/utf8.h"
#include "dcformer/text/characters.h"

namespace dcformer {
namespace {

struct Maps {
  std::array<std::string, 256> characters;
  // By code point; -1 where it stands for no byte.
  std::array<int, 0x144> bytes;
};

bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

const Maps& maps() {
  static const Maps all = [] {
    Maps made;
    made.bytes.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const int c = is_printable(byte) ? byte : next++;
      made.bytes[static_cast<size_t>(c)] = byte;
      std::string& text = made.characters[static_cast<size_t>(byte)];
      if (c < 0x80) {
        text = static_cast<char>(c);
      } else {
        text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
      }
    }
    return made;
  }();
  return all;
}

}  // namespace

std::string bytes_to_characters(std::string_view bytes) {
  std::string characters;
  characters.reserve(bytes.size());
  for (const char byte : bytes) characters += maps().characters[static_cast<unsigned char>(byte)];
  return characters;
}

std::optional<std::string> characters_to_bytes(std::string_view characters) {
  std::string bytes;
  bytes.reserve(characters.size());
  while (!characters.empty()) {
    const Utf8Step step = utf8_front(characters.substr(0, 4));
    if (step.front != Utf8Front::character) return std::nullopt;
    const char32_t c = code_point(characters.substr(0, step.length));
    if (c >= maps().bytes.size() || maps().bytes[c] < 0) return std::nullopt;
    bytes += static_cast<char>(maps().bytes[c]);
    characters.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace dcformer
