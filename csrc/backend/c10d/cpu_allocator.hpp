// The allocator hook for recorded memory on the CPU: wraps torch's CPU allocator and tells the recorder of every
// allocation and release. "Bytes" are those requested at this allocator; memory from NumPy, shared memory and files
// does not pass here. What would exceed the rank's limit raises torch.OutOfMemoryError.
#pragma once

namespace prism {

// From now on CPU tensors are counted; once per process, before the program allocates. Idempotent.
void install_cpu_allocator();
// From now on what is counted holds zeros at first: what a program does with memory that it has not filled, and that no
// peer fills, is the same in every run.
void fill_cpu_allocations();
// In a forked child: what the parent allocated is not the child's to count.
void forget_cpu_allocations();

}  // namespace prism
