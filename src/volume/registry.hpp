//! The volumes mounted in this process, shared by every DuckDB instance in it. A volume is mounted by its
//! first use and unmounted (which gives up its lock) as soon as it is idle.
#pragma once

#include "volume/volume.hpp"

namespace rawduck {

//! Keeps a volume mounted while it lives. Copyable, thread-safe.
class VolumePin {
  public:
    VolumePin() = default;
    explicit VolumePin(std::shared_ptr<Volume> volume);
    ~VolumePin();
    VolumePin(const VolumePin &other);
    VolumePin(VolumePin &&other) noexcept;
    VolumePin &operator=(VolumePin other) noexcept;

    Volume *operator->() const { return volume_.get(); }
    Volume &operator*() const { return *volume_; }
    explicit operator bool() const { return volume_ != nullptr; }

  private:
    std::shared_ptr<Volume> volume_;
};

//! Mounts the target or finds it mounted. A memory target that does not exist is created with
//! options.memory_target_bytes and formatted: there is nothing to lose. Options of a volume that is already
//! mounted stay as they are. Throws what ResolveVolume and Volume::Mount throw.
VolumePin PinVolume(const std::string &target_name, const MountOptions &options);

//! Opens a file of the volume, which stays mounted until the handle is destroyed. Throws as Volume::Open.
std::unique_ptr<OpenFile> OpenPinned(VolumePin volume, const std::string &name, const OpenMode &mode);

//! For operations on a target that is not mounted: keeps it from being mounted in this process while this
//! object exists. A mount waits for its end; the constructor waits for a mount that is about to end, and for
//! another reservation.
class TargetReservation {
  public:
    enum class WhenMounted { REFUSE, SHARE };
    //! REFUSE throws as ThrowInUse when something on it is open. SHARE pins the volume if it is mounted, and
    //! then reserves nothing.
    TargetReservation(const Target &target, const char *done, WhenMounted when_mounted = WhenMounted::REFUSE);
    ~TargetReservation();
    TargetReservation(const TargetReservation &) = delete;
    TargetReservation &operator=(const TargetReservation &) = delete;

    const VolumePin &Mounted() const { return mounted_; }

  private:
    const std::string identity_;
    VolumePin mounted_;
};

//! The volume on this target; an empty pin when it is not mounted right now. `identity` as in Target.
VolumePin MountedVolume(const std::string &identity);
//! The volumes mounted right now.
std::vector<VolumePin> MountedVolumes();

struct TargetStats {
    std::string target;
    std::shared_ptr<IoStats> stats;
};
//! Statistics of every target used by this process, mounted or not, of volumes and of direct:// files.
std::vector<TargetStats> AllStats();
//! The statistics kept for one target, created on first use. `identity` as in Target.
std::shared_ptr<IoStats> StatsFor(const std::string &identity, const std::string &target_name);

} // namespace rawduck
