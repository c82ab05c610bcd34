#pragma once

#include <utility>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {

/// What the forward pass leaves for the backward pass: a stack of tensors. A layer's backward pops
/// what its forward pushed, last in first out. No tape, no storage: that is inference.
class Tape {
 public:
  void push(Tensor tensor) { stack_.push_back(std::move(tensor)); }
  Tensor pop() {
    require(!stack_.empty(), "tape: the backward pass pops more than the forward pass pushed");
    Tensor tensor = std::move(stack_.back());
    stack_.pop_back();
    return tensor;
  }
  bool empty() const { return stack_.empty(); }

 private:
  std::vector<Tensor> stack_;
};

}  // namespace dcformer
