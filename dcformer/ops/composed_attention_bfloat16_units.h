#pragma once

#include "dcformer/ops/composed_attention_bfloat16.h"

/// tile_product on each unit, to be called only where the processor has it.
namespace dcformer::attention {

/// Asks the system for the tiles' registers, once a process. False where it has none to give.
bool request_amx();
/// Sets up the calling thread's tiles; gives them back.
void configure_amx();
void release_amx();

void amx_product(const TileProduct& product);
void dot_product(const TileProduct& product);

}  // namespace dcformer::attention
