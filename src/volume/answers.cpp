//! What other processes ask of a volume that this process has open for writing, besides reading it.

#include "volume/volume.hpp"

#include "common/error.hpp"
#include "volume/mount/volume_state.hpp"

#include <atomic>

namespace rawduck {

namespace {

std::atomic<Describer> g_describer{nullptr};

} // namespace

void SetDescriber(Describer describer) {
    g_describer = describer;
}

std::string Volume::Answer(const WriterRequest &request) {
    switch (request.kind) {
    case WriterRequest::Kind::READ:
        break;
    case WriterRequest::Kind::DESCRIBE: {
        const Describer describer = g_describer;
        if (!describer) {
            throw Error(ErrorCode::UNSUPPORTED,
                        state_->target.name +
                            ": the program that has the volume open for writing has no SQL");
        }
        return describer(*this, request.subject);
    }
    case WriterRequest::Kind::SNAPSHOT:
        Snapshot(request.subject, request.argument);
        return "";
    case WriterRequest::Kind::CLONE:
        Clone(request.subject, request.argument);
        return "";
    case WriterRequest::Kind::DROP_SNAPSHOT:
        DropSnapshot(request.subject);
        return "";
    case WriterRequest::Kind::REMOVE:
        Remove(request.subject, RemoveMode::NOBODY_HAS_IT);
        return "";
    }
    throw Error(ErrorCode::UNSUPPORTED, state_->target.name +
                                            ": the process that has the volume open for writing does not "
                                            "know what it was asked; is it of the same version of rawduck?");
}

} // namespace rawduck
