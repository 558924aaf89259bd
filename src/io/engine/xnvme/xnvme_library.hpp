//! Finds and loads librawduck_xnvme.so.
#pragma once

#include "io/engine/xnvme/xnvme_module.hpp"

#include <string>

namespace rawduck {

//! Where it belongs: beside the object that this code is in.
std::string XnvmeModulePath();

//! Loads it, once; nullptr with `obstacle` set to a clause that says why there is none and what to do. What
//! failed is tried again by the next call. Thread-safe.
const XnvmeModule *LoadXnvmeModule(const std::string &path, std::string &obstacle);

//! The one that belongs here. Throws Error UNSUPPORTED.
const XnvmeModule &RequireXnvmeModule(const std::string &target_name, const std::string &engine);

} // namespace rawduck
