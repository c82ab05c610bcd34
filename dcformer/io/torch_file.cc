#include "dcformer/io/torch_file.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "dcformer/base/check.h"
#include "dcformer/base/mapped_file.h"
#include "dcformer/io/byte_reader.h"
#include "dcformer/io/torch_state.h"
#include "dcformer/io/zip_archive.h"

namespace dcformer {
namespace {

using Bytes = std::span<const std::byte>;

// torch/serialization.py: MAGIC_NUMBER, little-endian, and PROTOCOL_VERSION.
constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr int64_t kProtocol = 1001;
// PROTO 2, then LONG1 of 10 bytes: the magic number.
constexpr std::string_view kFirstBytes = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8";

// A state and where the data of each of its storages begins in the file.
struct PlacedState {
  TorchState state;
  std::vector<size_t> begins;
};

std::string data_folder(const ZipArchive& archive, const std::string& where) {
  const std::string ending = "/data.pkl";
  std::string root;
  for (const ZipArchive::Member& member : archive.members()) {
    const bool is_pickle = member.name.ends_with(ending) &&
                           member.name.find('/') == member.name.size() - ending.size();
    if (!is_pickle) continue;
    require(root.empty(), "{}: holds both '{}/data.pkl' and '{}'", where, root, member.name);
    root = member.name.substr(0, member.name.size() - ending.size());
  }
  require(!root.empty(), "{}: a zip file without FOLDER/data.pkl is no file of tensors", where);
  return root;
}

void require_little_endian(const ZipArchive& archive, const std::string& name, Bytes bytes,
                           const std::string& where) {
  const ZipArchive::Member* order = archive.find(name);
  if (order == nullptr) return;
  const Bytes data = bytes.subspan(order->begin, order->size);
  const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
  require(text == "little", "{}: member '{}' says '{}', expected 'little'", where, name,
          text.substr(0, 16));
}

PlacedState read_zip(Bytes bytes, const std::string& where) {
  const ZipArchive archive = ZipArchive::parse(bytes, where);
  const std::string root = data_folder(archive, where);
  require_little_endian(archive, root + "/byteorder", bytes, where);
  const ZipArchive::Member* member = archive.find(root + "/data.pkl");
  const std::string pickle_name = fmt::format("{}: {}", where, member->name);
  const Pickle pickle = Pickle::parse(bytes.subspan(member->begin, member->size), 0, pickle_name);
  PlacedState placed{read_torch_state(pickle, where), {}};
  std::unordered_map<std::string_view, const ZipArchive::Member*> members;
  for (const ZipArchive::Member& m : archive.members()) members.emplace(m.name, &m);
  for (const TorchState::Storage& storage : placed.state.storages) {
    const std::string name = root + "/data/" + storage.key;
    const auto data = members.find(name);
    require(data != members.end(), "{}: member '{}' is missing", where, name);
    require(data->second->size == storage.bytes(),
            "{}: member '{}' has {} bytes, expected {} elements of {}", where, name,
            data->second->size, storage.n_element, name_of(storage.dtype));
    placed.begins.push_back(data->second->begin);
  }
  return placed;
}

void require_legacy_header(const Pickle& magic, const Pickle& protocol, const Pickle& system,
                           const std::string& where) {
  require(magic.root().kind == Pickle::Kind::large_integer && magic.root().text == kMagic,
          "{}: its first pickle is not the number of a PyTorch file", where);
  require(protocol.root().kind == Pickle::Kind::integer && protocol.root().integer == kProtocol,
          "{}: its second pickle is not the protocol {}", where, kProtocol);
  const Pickle::Value* little = system.find(system.root(), "little_endian");
  require(little != nullptr && little->kind == Pickle::Kind::boolean && little->integer == 1,
          "{}: its third pickle does not say that numbers are little-endian", where);
}

// The storages lie behind the pickles in the order of the keys, each behind its number of elements.
std::vector<size_t> place_legacy(const Pickle& keys, const TorchState& state, Bytes bytes,
                                 const std::string& where) {
  require(keys.root().kind == Pickle::Kind::list, "{}: its fifth pickle is no list of keys", where);
  std::unordered_map<std::string_view, size_t> by_key;
  for (size_t i = 0; i < state.storages.size(); ++i) by_key[state.storages[i].key] = i;
  std::vector<size_t> begins(state.storages.size(), 0);
  ByteReader reader(bytes, where, keys.end());
  for (const Pickle::Id id : keys.root().items) {
    const auto found = by_key.find(keys[id].text);
    require(found != by_key.end(),
            "{}: the storage '{}' in its list of keys is no tensor's, or occurs twice", where,
            keys[id].text);
    const TorchState::Storage& storage = state.storages[found->second];
    const size_t at = reader.at();
    const auto n_element = reader.number<int64_t>();
    require(n_element == storage.n_element,
            "{}: byte {}: storage '{}' has {} elements, expected {}", where, at, storage.key,
            n_element, storage.n_element);
    begins[found->second] = reader.at();
    reader.bytes(storage.bytes());
    by_key.erase(found);
  }
  require(by_key.empty(), "{}: storage '{}' is not in its list of keys", where,
          by_key.empty() ? "" : by_key.begin()->first);
  return begins;
}

PlacedState read_legacy(Bytes bytes, const std::string& where) {
  const Pickle magic = Pickle::parse(bytes, 0, where);
  const Pickle protocol = Pickle::parse(bytes, magic.end(), where);
  const Pickle system = Pickle::parse(bytes, protocol.end(), where);
  require_legacy_header(magic, protocol, system, where);
  const Pickle object = Pickle::parse(bytes, system.end(), where);
  const Pickle keys = Pickle::parse(bytes, object.end(), where);
  PlacedState placed{read_torch_state(object, where), {}};
  placed.begins = place_legacy(keys, placed.state, bytes, where);
  return placed;
}

std::vector<StoredTensor> stored_tensors(const TorchState& state, const std::string& where) {
  std::vector<StoredTensor> tensors;
  for (const TorchState::TensorView& t : state.tensors)
    tensors.push_back({t.name, t.dtype, t.shape, where});
  return tensors;
}

class TorchSource : public TensorSource {
 public:
  TorchSource(std::shared_ptr<const std::byte> owner, PlacedState placed, const std::string& where)
      : TensorSource(where, stored_tensors(placed.state, where)),
        owner_(std::move(owner)),
        placed_(std::move(placed)) {}

 private:
  const std::byte* first(const TorchState::TensorView& tensor) const {
    return owner_.get() + placed_.begins[tensor.storage] +
           tensor.offset * static_cast<int64_t>(size_of(tensor.dtype));
  }

  std::shared_ptr<const std::byte> contiguous(size_t index) const override {
    const TorchState::TensorView& tensor = placed_.state.tensors[index];
    if (!tensor.is_contiguous()) return nullptr;
    return {owner_, tensor.shape.numel() == 0 ? owner_.get() : first(tensor)};
  }

  void read_range(size_t index, int64_t begin, const ElementTarget& to) const override {
    const TorchState::TensorView& tensor = placed_.state.tensors[index];
    const std::byte* data = first(tensor);
    const auto size = static_cast<int64_t>(size_of(tensor.dtype));
    if (tensor.is_contiguous()) return read_elements(tensor.dtype, data + begin * size, 1, to);
    const int64_t row = tensor.shape[-1];
    for (int64_t i = 0; i < to.n;) {
      const int64_t column = (begin + i) % row;
      const int64_t n = std::min(row - column, to.n - i);
      const int64_t at = row_offset(tensor, (begin + i) / row) + column * tensor.strides.back();
      read_elements(tensor.dtype, data + at * size, tensor.strides.back(), to.part(i, n));
      i += n;
    }
  }

  // Of the first element of a row of the last axis.
  static int64_t row_offset(const TorchState::TensorView& tensor, int64_t row) {
    int64_t offset = 0;
    for (int axis = tensor.shape.rank() - 2; axis >= 0; --axis) {
      offset += row % tensor.shape[axis] * tensor.strides[static_cast<size_t>(axis)];
      row /= tensor.shape[axis];
    }
    return offset;
  }

  std::shared_ptr<const std::byte> owner_;
  PlacedState placed_;
};

}  // namespace

std::unique_ptr<TensorSource> open_torch_file(const std::string& path) {
  const MappedFile file(path);
  return parse_torch_file(file.owner(), file.bytes().size(), path);
}

std::unique_ptr<TensorSource> parse_torch_file(std::shared_ptr<const std::byte> owner, size_t size,
                                               const std::string& where) {
  const Bytes bytes(owner.get(), size);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const bool legacy = text.starts_with(kFirstBytes);
  require(legacy || ZipArchive::recognises(bytes),
          "{}: expected a file of torch.save, a zip archive or pickles behind PyTorch's number",
          where);
  PlacedState placed = legacy ? read_legacy(bytes, where) : read_zip(bytes, where);
  return std::make_unique<TorchSource>(std::move(owner), std::move(placed), where);
}

}  // namespace dcformer
