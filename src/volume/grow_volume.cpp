//! Volume::Grow. The target is made larger first, if it is a file, and that is durable; then a checkpoint gives the volume
//! its new size (Journal::BeginGrowth); only then is what it gains given to files. So a cut or kill anywhere leaves the
//! volume with one of the two sizes, on a target that is large enough for both.
#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "target/reserve_file.hpp"
#include "target/stripe.hpp"
#include "volume/mount/volume_state.hpp"
#include "volume/volume.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace rawduck {

namespace {

[[noreturn]] void ThrowImpossible(const VolumeState &state, const std::string &why) {
    throw Error(ErrorCode::INVALID, state.target.name + ": " + why + "; nothing was changed");
}

uint64_t CapacityOf(const VolumeState &state) {
    return state.capacity_units * ALLOCATION_UNIT_BYTES;
}

//! `used`: what the volume has of the target or member `name`, which has `bytes`.
void RequireAsLarge(const VolumeState &state, const std::string &name, uint64_t bytes, uint64_t used) {
    if (bytes < used) {
        ThrowImpossible(state, "the volume has " + std::to_string(used) + " bytes of " + name +
                                   ", which has only " + std::to_string(bytes) + ": it was made smaller; " +
                                   (state.target.kind == TargetKind::REGULAR_FILE
                                        ? "what the file had behind that is lost, so restore it from a backup"
                                        : "make it as large again"));
    }
}

//! A regular file that is made longer: the target, or a member of it. Undone unless Keep is called.
class LongerFile {
  public:
    //! `used`: the bytes of it that the volume has. `size_bytes`: that it is to have; 0: as it is.
    LongerFile(const VolumeState &state, const Target &file, uint64_t used, uint64_t size_bytes)
        : fd_(state.lock->DescriptorOf(file)), name_(file.name), size_bytes_(size_bytes) {
        struct stat status;
        if (fd_ < 0 || fstat(fd_, &status) != 0) {
            throw Error(ErrorCode::IO, name_ + ": cannot ask for its size: " + ErrnoText(errno));
        }
        old_bytes_ = static_cast<uint64_t>(status.st_size);
        RequireAsLarge(state, name_, old_bytes_,
                       used); // made longer, it would have zeros where the volume had something
        if (size_bytes_ != 0 && size_bytes_ < AlignDown(old_bytes_, ALLOCATION_UNIT_BYTES)) {
            ThrowImpossible(state, "the file " + name_ + " has " + std::to_string(old_bytes_) +
                                       " bytes already, more than " + std::to_string(size_bytes_) +
                                       "; to use them all, leave out --size (size in SQL)");
        }
    }
    ~LongerFile() {
        if (!kept_ && size_bytes_ > old_bytes_) {
            // If that fails, the file is longer than its volume, which is no damage.
            [[maybe_unused]] const int result = ftruncate(fd_, static_cast<off_t>(old_bytes_));
        }
    }
    LongerFile(const LongerFile &) = delete;
    LongerFile &operator=(const LongerFile &) = delete;

    //! Space for all that lies behind the byte `from`.
    void Reserve(uint64_t from) {
        const uint64_t end = std::max(size_bytes_, old_bytes_);
        if (end > from) {
            ReserveFile(fd_, name_, from, end);
        }
    }
    //! Makes its length durable.
    void Sync() {
        if (fsync(fd_) != 0) {
            throw Error(ErrorCode::IO, name_ + ": cannot make its new length durable: " + ErrnoText(errno) +
                                           "; look into the kernel log (dmesg)");
        }
    }
    void Keep() { kept_ = true; }

  private:
    const int fd_;
    const std::string name_;
    const uint64_t size_bytes_;
    uint64_t old_bytes_ = 0;
    bool kept_ = false;
};

//! The files that the volume lies on; none on devices. All are made longer, or none.
class LongerFiles {
  public:
    LongerFiles(const VolumeState &state, uint64_t size_bytes) : from_(UsedBytes(state)) {
        if (state.target.kind == TargetKind::REGULAR_FILE) {
            for (const Target &part : PartsOf(state.target)) {
                files_.push_back(std::make_unique<LongerFile>(state, part, from_, size_bytes));
            }
        }
    }
    void Reserve() {
        for (const auto &file : files_) {
            file->Reserve(from_);
        }
    }
    //! Durable before the superblocks tell of it.
    void Keep() {
        for (const auto &file : files_) {
            file->Sync();
        }
        for (const auto &file : files_) {
            file->Keep();
        }
    }

  private:
    //! Of each file.
    static uint64_t UsedBytes(const VolumeState &state) {
        const Stripe *stripe = state.target.stripe.get();
        return stripe ? stripe->data_start + CapacityOf(state) / stripe->members.size() : CapacityOf(state);
    }

    const uint64_t from_;
    std::vector<std::unique_ptr<LongerFile>> files_;
};

void RefuseImpossibleSize(const VolumeState &state, uint64_t size_bytes) {
    if (size_bytes == 0) {
        return;
    }
    if (state.target.kind != TargetKind::REGULAR_FILE) {
        ThrowImpossible(state,
                        "only a regular file can be made larger here, this target has the size that it has: "
                        "leave out --size (size in SQL)");
    }
    if (!state.target.stripe && size_bytes < CapacityOf(state)) {
        ThrowImpossible(state, "the volume has " + std::to_string(CapacityOf(state)) +
                                   " bytes, and cannot shrink to " + std::to_string(size_bytes) +
                                   "; give a larger --size (size in SQL)");
    }
}

//! What cannot be written is noticed before anything depends on it: in front of the superblock that may lie at the end.
void TryGainedSpace(VolumeState &state, uint64_t units) {
    if (units - state.capacity_units < 2) {
        return;
    }
    AlignedBuffer zeros;
    zeros.AppendZeros(ALLOCATION_UNIT_BYTES);
    state.io->Write((units - 2) * ALLOCATION_UNIT_BYTES, zeros.Data(), ALLOCATION_UNIT_BYTES,
                    PlacementClass::METADATA);
}

//! The superblocks have the new size.
void UseSpace(VolumeState &state, uint64_t units) {
    state.capacity_units =
        units; // before any file has something there, or an image would name what lies outside
    state.space.Grow(units - 1);
    state.room.Grow({state.superblock.data_start, units - 1});
}

uint64_t UnitsOf(VolumeState &state) {
    const uint64_t bytes = state.io->RefreshCapacity();
    RequireAsLarge(state, state.target.name, bytes, CapacityOf(state));
    return bytes / ALLOCATION_UNIT_BYTES;
}

} // namespace

VolumeGrowth Volume::Grow(uint64_t size_bytes) {
    VolumeState &state = *state_;
    std::lock_guard<std::mutex> growing(state.growth_mutex);
    UnitsOf(state); // before anything is written to one that is too small
    WriteScope writing(state);
    size_bytes = AlignDown(size_bytes, ALLOCATION_UNIT_BYTES);
    RefuseImpossibleSize(state, size_bytes);
    VolumeGrowth growth;
    growth.before_bytes = CapacityOf(state);
    LongerFiles files(state, size_bytes);
    files.Reserve();
    const uint64_t units = UnitsOf(state);
    if (units > state.capacity_units) {
        TryGainedSpace(state, units);
        files.Keep();
        state.io->BeginWriting(); // what lies at the end of each member belongs to the new end
        state.log.Grow(units);
    }
    UseSpace(state, units);
    writing.Finish();
    growth.after_bytes = CapacityOf(state);
    return growth;
}

uint64_t Volume::GrowableBytes() const {
    try {
        const uint64_t units = state_->io->RefreshCapacity() / ALLOCATION_UNIT_BYTES;
        const uint64_t used = state_->capacity_units;
        return units > used ? (units - used) * ALLOCATION_UNIT_BYTES : 0;
    } catch (const Error &) {
        return 0; // of a device that is gone its volume can still be described
    }
}

} // namespace rawduck
