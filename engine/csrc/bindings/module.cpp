#include "bindings/bindings.h"

NB_MODULE(_kernels, m) {
  m.doc() = "Native kernels of the coli engine; see colibri_engine.kernels.";
  coli::bind_machine(m);
  coli::bind_experts(m);
  coli::bind_tensors(m);
  coli::bind_layers(m);
  coli::bind_sequences(m);
  coli::bind_latents(m);
}
