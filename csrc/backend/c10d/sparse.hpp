// all_reduce of a sparse tensor under capture.
#pragma once
#include "backend/c10d/route.hpp"

namespace prism {

// As Gloo does it: all members gather all members' indices and values, and add them up in rank order. Blocks; sum only.
// `backend` serves the gathers. The tensor becomes the coalesced sum.
WorkPtr sparse_all_reduce(c10d::Backend& backend, at::Tensor& tensor, const c10d::AllreduceOptions& options);

}  // namespace prism
