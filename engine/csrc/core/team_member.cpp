#include "core/team_member.h"

#include <thread>

namespace coli {

bool TeamMember::invite() {
  Visit home = kHome;
  if (!visit_.compare_exchange_strong(home, kMoving, std::memory_order_seq_cst)) return false;
  // Either the end of the items is seen here, or the member then sees the invitation.
  const bool moved = holds_items() && thread_.pull_here();
  visit_.store(moved ? kGuest : kHome, std::memory_order_release);
  return moved;
}

void TeamMember::end_visit(bool elsewhere) {
  Visit visit = kGuest;
  while (!visit_.compare_exchange_weak(visit, kMoving, std::memory_order_acq_rel)) {
    if (visit == kHome) return;
    if (visit == kMoving) std::this_thread::yield();  // the other side is about to finish
    visit = kGuest;
  }
  thread_.release(elsewhere);
  visit_.store(kHome, std::memory_order_release);
}

}  // namespace coli
