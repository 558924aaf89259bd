//! What is done in whichever process has the volume open for writing, and in this one where nobody has.
#pragma once

#include "volume/mount/options.hpp"
#include "volume/readers/reader_channel.hpp"
#include "volume/registry.hpp"

#include <functional>
#include <string>
#include <vector>

namespace rawduck {

//! Asks whoever has the volume open to do `request` (not READ), or opens it and does it here where nobody has, and returns the
//! answer. Whoever comes or goes meanwhile is asked, or waited for, for a while. What one of them was
//! asked for when it ended is done once: it is looked for first. Throws what the writer refuses, Unanswered when
//! it does not answer, INTERRUPTED, and as PinVolume. `mounted`: the volume, where it was done here.
std::string DoHereOrAsk(const std::string &target_name, const WriterRequest &request,
                        const MountOptions &options, VolumePin *mounted = nullptr);

//! The same for anything else: `ask` returns whether somebody was there and answered; `here` throws LOCKED when somebody is.
void AskOrDoHere(const Target &target, const Interrupted &interrupted, const std::function<bool()> &ask,
                 const std::function<void()> &here);

//! Asks as AskWriter does, with a descriptor that is open for what the request needs.
std::optional<std::string> Ask(const Target &target, const WriterRequest &request,
                               const Interrupted &interrupted);

//! The names in the answer to LIST and REMOVE.
std::vector<std::string> NamesIn(const std::string &answer);

} // namespace rawduck
