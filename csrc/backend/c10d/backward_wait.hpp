// The waits at the end of a backward pass that nothing announces: DDP's finalize callback waits in futures, whose
// wait() is not virtual. Called at each issue.
#pragma once

namespace prism {

// Inside a backward pass: sees to it that a wait is recorded, and the slot lent, around the final callbacks that other
// code queues after this issue. Outside one: does nothing.
void expect_waits_after_backward();

}  // namespace prism
