#include "dcformer/io/text_file.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/utf8.h"

namespace dcformer {
namespace {

constexpr size_t kMaxUnpacked = size_t{16} << 30;
constexpr int kGzipWindow = 15 + 16;
constexpr std::string_view kGzipMagic = "\x1F\x8B";

}  // namespace

std::string unpack_gzip(std::string_view packed, const std::string& where) {
  z_stream stream{};
  require(inflateInit2(&stream, kGzipWindow) == Z_OK, "{}: cannot start unpacking", where);
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> guard(&stream, &inflateEnd);
  std::string text;
  std::vector<unsigned char> buffer(1 << 18);
  size_t next = 0;
  for (;;) {
    if (stream.avail_in == 0) {
      const size_t n = std::min<size_t>(packed.size() - next, std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data())) + next;
      stream.avail_in = static_cast<uInt>(n);
      next += n;
    }
    stream.next_out = buffer.data();
    stream.avail_out = static_cast<uInt>(buffer.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    text.append(reinterpret_cast<char*>(buffer.data()), buffer.size() - stream.avail_out);
    require(text.size() <= kMaxUnpacked, "{}: unpacks to more than {} bytes", where, kMaxUnpacked);
    const bool at_end = stream.avail_in == 0 && next == packed.size();
    if (result == Z_STREAM_END) {
      if (at_end) return text;
      // Another member follows.
      require(inflateReset(&stream) == Z_OK, "{}: cannot continue unpacking", where);
      continue;
    }
    const bool starved = at_end && stream.avail_out != 0;
    require(result == Z_OK && !starved, "{}: {}", where,
            starved ? "the gzip data is cut short" : "not valid gzip data");
  }
}

std::string read_text_file(const std::string& path) {
  std::string text = read_file(path);
  require(!text.empty(), "{}: the file is empty", path);
  if (path.ends_with(".gz")) text = unpack_gzip(text, path);
  require(!text.empty(), "{}: the file holds no text", path);
  const size_t invalid = find_invalid_utf8(text);
  require(invalid == std::string::npos, "{}: not valid UTF-8 at byte offset {}{}", path, invalid,
          text.starts_with(kGzipMagic) ? " (gzip data? its name must then end in .gz)" : "");
  return text;
}

}  // namespace dcformer
