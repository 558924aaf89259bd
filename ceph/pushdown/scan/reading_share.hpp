//! When a scan whose objects OSDs work on reads some of them itself. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace rawduck_ceph {

//! Where a scan stands. Times in seconds.
struct ScanProgress {
    size_t unsent = 0;    //!< objects that no OSD was asked about yet
    size_t in_flight = 0; //!< objects that OSDs were asked about
    size_t answered = 0;
    double elapsed_s = 0; //!< since the first call
};

//! Whether a thread that has nothing to do should read an unsent object: that must not take longer than the
//! OSDs probably need for everything that is left. Objects in flight count as half done, so that OSDs that do not
//! answer at all are left alone in time.
inline bool ShouldRead(const ScanProgress &progress, double read_object_s) {
    const double in_flight_half = static_cast<double>(progress.in_flight) / 2;
    const double done = static_cast<double>(progress.answered) + in_flight_half;
    const double left = static_cast<double>(progress.unsent) + in_flight_half;
    return progress.unsent > 0 && read_object_s * done <= left * progress.elapsed_s;
}

//! An OSD is stuck that needs this many times as long as any other answer took.
constexpr double STUCK_FACTOR = 2;

//! Whether a thread that has nothing to do should read an object that an OSD was asked about `waited_s` ago, where
//! none is unsent. On a slow link reading takes longer than what the OSDs have left, and the scan would wait for it;
//! so it must not take longer than they need for that at their rate so far, unless this one is stuck.
//! `longest_answer_s`: of the answers so far.
inline bool ShouldReadAsked(const ScanProgress &progress, double waited_s, double longest_answer_s,
                            double read_object_s) {
    const double left_s = static_cast<double>(progress.in_flight) * progress.elapsed_s;
    const bool is_sooner = read_object_s * static_cast<double>(progress.answered) <= left_s;
    const double enough_s =
        is_sooner ? read_object_s : std::max(read_object_s, STUCK_FACTOR * longest_answer_s);
    return progress.unsent == 0 && waited_s >= enough_s;
}

//! Whether the OSDs' hosts probably have most answers of a scan that has ended: objects that the client has read beside
//! them are computed when they are asked about the next time.
inline bool HasMostAnswers(size_t objects, size_t answered, size_t shared) {
    return answered + shared == objects && 2 * answered >= objects;
}

} // namespace rawduck_ceph
