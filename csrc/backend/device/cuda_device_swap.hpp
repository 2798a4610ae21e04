// DeviceSwap through the process-checkpoint functions of the CUDA driver (570 and newer). Only the first call of
// viable() touches the driver, and no context is made: this process takes no device memory.
#pragma once
#include <memory>

#include "backend/device/device_swap.hpp"

namespace prism {

std::shared_ptr<DeviceSwap> make_cuda_device_swap();

}  // namespace prism
