#include "dcformer/io/torch_state.h"

#include <unordered_map>
#include <unordered_set>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

using Value = Pickle::Value;
using Kind = Pickle::Kind;

// Far beyond any file, and such that bytes fit 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 56;

// The part of a storage that a tensor may use.
struct StorageView {
  size_t storage;
  int64_t begin;
  int64_t n_element;
};

class StateReader {
 public:
  StateReader(const Pickle& pickle, const std::string& where) : pickle_(pickle), file_(where) {}

  TorchState read() {
    const Value& dict = state_dict();
    // In the older form the place of a storage follows from all before it, of whatever use.
    where_ = file_;
    for (const Value& value : pickle_.values())
      if (value.kind == Kind::storage) read_storage(value);
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const Value& key = pickle_[dict.items[i]];
      const Value& value = pickle_[dict.items[i + 1]];
      if (value.kind != Kind::tensor) continue;
      where_ = file_;
      expect(key.kind == Kind::text, "expected a text as the name of a tensor");
      where_ = fmt::format("{}: tensor '{}'", file_, key.text);
      expect(names.insert(key.text).second, "the name occurs twice");
      state_.tensors.push_back(read_tensor(value, std::string(key.text)));
    }
    return std::move(state_);
  }

 private:
  bool has_tensors(const Value& dict) const {
    for (size_t i = 1; dict.kind == Kind::dict && i < dict.items.size(); i += 2)
      if (pickle_[dict.items[i]].kind == Kind::tensor) return true;
    return false;
  }

  const Value& state_dict() const {
    const Value& root = pickle_.root();
    require(root.kind == Kind::dict, "{}: expected a pickled dict of tensors", file_);
    if (has_tensors(root)) return root;
    for (const char* key : {"state_dict", "model"}) {
      const Value* inner = pickle_.find(root, key);
      if (inner != nullptr && has_tensors(*inner)) return *inner;
    }
    fail("{}: the pickled dict holds no tensors, nor does a dict 'state_dict' or 'model' in it",
         file_);
  }

  void expect(bool condition, const char* text) const {
    require(condition, "{}: {}", where_, text);
  }

  int64_t count(Pickle::Id id, const char* what) const {
    const Value& value = pickle_[id];
    require(value.kind == Kind::integer && value.integer >= 0 && value.integer <= kMostElements,
            "{}: {} is no whole number from 0 to 2^56", where_, what);
    return value.integer;
  }
  std::vector<int64_t> counts(Pickle::Id id, const char* what) const {
    const Value& tuple = pickle_[id];
    require(tuple.kind == Kind::tuple && tuple.items.size() <= size_t{Shape::kMaxRank},
            "{}: {} is no tuple of at most {} numbers", where_, what, Shape::kMaxRank);
    std::vector<int64_t> values;
    for (const Pickle::Id item : tuple.items) values.push_back(count(item, what));
    return values;
  }

  Shape shape(const std::vector<int64_t>& dims) const {
    try {
      return Shape(dims);
    } catch (const Error& e) {
      fail("{}: {}", where_, e.what());
    }
  }

  // Arguments: torch/_utils.py, _rebuild_tensor, _rebuild_tensor_v2 and _v3.
  TorchState::TensorView read_tensor(const Value& value, std::string name) {
    const std::vector<Pickle::Id>& arguments = pickle_[value.items[0]].items;
    const bool has_type = value.global->meaning == PickleGlobal::rebuild_tensor_v3;
    expect(arguments.size() >= (has_type ? 7 : 4), "its call has too few arguments");
    const StorageView view = read_storage(pickle_[arguments[0]]);
    const TorchState::Storage& storage = state_.storages[view.storage];
    TorchState::TensorView tensor;
    tensor.name = std::move(name);
    tensor.dtype = has_type ? element_type(pickle_[arguments[6]]) : storage.dtype;
    tensor.offset = count(arguments[1], "its offset");
    tensor.shape = shape(counts(arguments[2], "its size"));
    tensor.strides = counts(arguments[3], "its stride");
    tensor.storage = view.storage;
    require_within(tensor, view, storage);
    tensor.offset += view.begin;
    return tensor;
  }

  DType element_type(const Value& value) const {
    expect(value.kind == Kind::global && value.global->meaning == PickleGlobal::element_type,
           "expected an element type");
    return value.global->dtype;
  }

  // Persistent id: torch/serialization.py, persistent_id and _legacy_save.
  StorageView read_storage(const Value& value) {
    expect(value.kind == Kind::storage, "expected a storage");
    const std::vector<Pickle::Id>& id = pickle_[value.items[0]].items;
    expect(id.size() == 5 || id.size() == 6, "its storage has no persistent id of 5 or 6 parts");
    expect(pickle_[id[0]].kind == Kind::text && pickle_[id[0]].text == "storage",
           "its persistent id is not that of a storage");
    const Value& type = pickle_[id[1]];
    expect(type.kind == Kind::global && (type.global->meaning == PickleGlobal::typed_storage ||
                                         type.global->meaning == PickleGlobal::untyped_storage),
           "expected the type of a storage");
    expect(pickle_[id[2]].kind == Kind::text, "expected a text as the key of its storage");
    const TorchState::Storage storage{std::string(pickle_[id[2]].text), type.global->dtype,
                                      count(id[4], "the size of its storage")};
    const size_t index = add(storage);
    if (id.size() == 5 || pickle_[id[5]].kind == Kind::none) return {index, 0, storage.n_element};
    return part_of(storage, index, pickle_[id[5]]);
  }

  // View metadata of the older form: (key, offset, size).
  StorageView part_of(const TorchState::Storage& storage, size_t index, const Value& view) const {
    expect(view.kind == Kind::tuple && view.items.size() == 3,
           "expected three numbers about the view of its storage");
    const StorageView part{index, count(view.items[1], "the offset of its view"),
                           count(view.items[2], "the size of its view")};
    expect(part.begin <= storage.n_element && part.n_element <= storage.n_element - part.begin,
           "the view of its storage reaches beyond it");
    return part;
  }

  size_t add(const TorchState::Storage& storage) {
    const auto [found, added] = by_key_.emplace(storage.key, state_.storages.size());
    if (added) {
      state_.storages.push_back(storage);
    } else {
      const TorchState::Storage& known = state_.storages[found->second];
      require(known.dtype == storage.dtype && known.n_element == storage.n_element,
              "{}: storage '{}' is {} elements of {}, elsewhere {} of {}", where_, storage.key,
              storage.n_element, name_of(storage.dtype), known.n_element, name_of(known.dtype));
    }
    return found->second;
  }

  void require_within(const TorchState::TensorView& tensor, const StorageView& view,
                      const TorchState::Storage& storage) const {
    require(tensor.strides.size() == static_cast<size_t>(tensor.shape.rank()),
            "{}: {} strides for shape {}", where_, tensor.strides.size(), to_string(tensor.shape));
    const auto available = static_cast<int64_t>(static_cast<uint64_t>(view.n_element) *
                                                size_of(storage.dtype) / size_of(tensor.dtype));
    if (tensor.shape.numel() == 0) return;
    int64_t last = tensor.offset;
    bool fits = true;
    for (size_t i = 0; i < tensor.strides.size(); ++i) {
      int64_t step = 0;
      fits = fits &&
             !__builtin_mul_overflow(tensor.shape.dims()[i] - 1, tensor.strides[i], &step) &&
             !__builtin_add_overflow(last, step, &last);
    }
    require(fits && last < available,
            "{}: shape {} from element {} on reaches beyond the {} elements of its storage", where_,
            to_string(tensor.shape), tensor.offset, available);
    require(tensor.shape.numel() <= available,
            "{}: shape {} repeats the {} elements of its storage", where_, to_string(tensor.shape),
            available);
  }

  const Pickle& pickle_;
  std::string file_;
  std::string where_;
  TorchState state_;
  std::unordered_map<std::string, size_t> by_key_;
};

}  // namespace

bool TorchState::TensorView::is_contiguous() const {
  int64_t expected = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    // The stride of an axis with a single index is of no account.
    if (shape[i] != 1 && strides[static_cast<size_t>(i)] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

TorchState read_torch_state(const Pickle& pickle, const std::string& where) {
  return StateReader(pickle, where).read();
}

}  // namespace dcformer
