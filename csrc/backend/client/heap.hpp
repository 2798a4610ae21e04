// The heap of a process that is about to fork, made ready for it.
#pragma once

#include <cstddef>
#include <functional>

namespace prism {

// What a forked process allocates goes first into the gaps that its parent has left, each on another page that the
// child then has to copy. These take all gaps, for good: what is allocated afterwards lies densely, in fresh memory.
// They cost no memory, for the gaps lie in pages that exist. Return the bytes taken.

// Of glibc's main arena, where a process that has always had one thread allocates; 0 under another C library.
std::size_t fill_c_heap();

// Of an allocator of pools of `pool_bytes` (`header_bytes` of them its own), each of one size of block, a multiple of
// 16 up to `largest`: CPython's small objects.
std::size_t fill_pools(const std::function<void*(std::size_t)>& allocate, std::size_t pool_bytes,
                       std::size_t header_bytes, std::size_t largest);

// Puts the process's anonymous memory into huge pages where the system can (Linux 6.1): a fork then copies, and an exit
// tears down, a five-hundredth of the page table. Takes about 3 s per GB, once. Returns the bytes so placed.
std::size_t use_huge_pages();

}  // namespace prism
