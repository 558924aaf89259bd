//! Which of xNVMe's interfaces the tests of all engines can go through here.
#pragma once

#include "io/device/device.hpp"
#include "io/engine/xnvme/xnvme.hpp"
#include "io/open_device.hpp"
#include "support/test_support.hpp"

namespace rawduck {

//! Those that open a regular file: none where the engine is not built, and not all in every version of xNVMe.
//! Xnvme.TheTestsOfAllEnginesRunWithIt says what is missing.
inline std::vector<std::string> XnvmeEnginesOnFiles() {
    std::vector<std::string> engines;
    if (!XnvmeObstacle().empty()) {
        return engines;
    }
    TemporaryFile file(1 * MIB);
    for (const std::string &name : XnvmeInterfaceNames()) {
        DeviceOptions options;
        options.engine = "xnvme:" + name;
        try {
            OpenDevice(ResolveTarget(file.Path()), options);
            engines.push_back(options.engine);
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED) << error.what();
        }
    }
    return engines;
}

} // namespace rawduck
