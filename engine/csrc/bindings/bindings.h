// The parts of the Python module; nanobind appears nowhere else.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "core/expert_slots.h"
#include "core/pod.h"

namespace coli {

// The numerics of a name; throws std::invalid_argument.
Numerics parse_numerics(const std::string& name);

// An arena as Python holds it. Reader threads share the memory, and never a Python object: to let
// go of one they would need the interpreter's lock, which a caller who waits for them may hold.
struct ArenaHandle {
  std::shared_ptr<SlotArena> slots;
};

void bind_machine(nanobind::module_& m);
void bind_tensors(nanobind::module_& m);
void bind_layers(nanobind::module_& m);
void bind_sequences(nanobind::module_& m);
void bind_latents(nanobind::module_& m);
void bind_experts(nanobind::module_& m);

}  // namespace coli
