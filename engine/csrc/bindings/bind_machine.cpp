#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "core/thread_team.h"
#include "dispatch.h"

namespace nb = nanobind;

namespace coli {

namespace {

std::vector<std::string> names_of(const KernelTable* const* tables) {
  std::vector<std::string> names;
  for (; *tables != nullptr; ++tables) names.emplace_back((*tables)->name);
  return names;
}

}  // namespace

void bind_machine(nb::module_& m) {
  m.def(
      "available_isas", [] { return names_of(available_tables()); },
      "Names of the instruction sets this processor can run, best first.");
  m.def(
      "built_isas", [] { return names_of(built_tables()); },
      "Names of the instruction sets in this build, whatever the processor, best first.");
  m.def(
      "active_isa", [] { return std::string(kernels().name); },
      "Name of the instruction set in use.");
  m.def(
      "set_isa", [](const std::string& name) { set_isa(name.c_str()); }, nb::arg("name"),
      "Force an instruction set. Raises ValueError when this processor lacks it.");
  m.def(
      "num_threads", [] { return ThreadTeam::instance().size(); },
      "Threads of the team, the caller included.");
  m.def(
      "set_num_threads", [](int n) { ThreadTeam::instance().resize(n); }, nb::arg("n"),
      nb::call_guard<nb::gil_scoped_release>(), "Resize the thread team (1..256).");
  m.def(
      "num_stalls", [] { return ThreadTeam::instance().num_stalls(); },
      "How often the caller slept for work that another thread held.");
}

}  // namespace coli
