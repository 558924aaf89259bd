//! What formatting would destroy, and whether the user has agreed to that.
#pragma once

#include "target/occupants/occupants.hpp"
#include "volume/mount/options.hpp"

#include <string>
#include <vector>

namespace rawduck {

//! One of the targets that are formatted together.
struct ExaminedTarget {
    std::string name;
    std::vector<Occupant> occupants;
};

//! What Volume::Format of a target, or FormatStripe of several, would destroy when forced. It takes the same locks and
//! writes nothing. A file that is not there holds nothing. Throws as these do where not even force formats a target.
std::vector<ExaminedTarget> ExamineTargets(const std::vector<std::string> &names);

//! Throws Error EXISTS unless nothing is lost, or what is has been agreed to: by force alone, whatever it is; with
//! options.agreed, exactly that and no less.
void RefuseOccupied(const std::vector<ExaminedTarget> &targets, const FormatOptions &options);

} // namespace rawduck
