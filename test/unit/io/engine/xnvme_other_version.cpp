//! A librawduck_xnvme.so of another version of the interface.
#include "io/engine/xnvme/xnvme_module.hpp"

extern "C" __attribute__((visibility("default"))) const rawduck::XnvmeModule *rawduck_xnvme_module() {
    static const rawduck::XnvmeModule module = {rawduck::XNVME_MODULE_VERSION + 1,
                                                "",
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr};
    return &module;
}
