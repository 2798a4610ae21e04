// 2.11 -> 211: for the few places where torch's headers differ between the versions that we support.
#pragma once
#include <torch/version.h>

#define PRISM_TORCH_VERSION (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)
