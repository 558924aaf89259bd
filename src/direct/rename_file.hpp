//! Gives a finished file of an ordinary file system the name under which it was announced.
#pragma once

#include <string>

namespace rawduck {

//! Each is one step, durable on return, of a file within its directory. They throw Error.

//! Never replaces anything: throws EXISTS, and both files stay as they are.
void RenameToNewName(const std::string &from, const std::string &to);
//! Replaces what is there, which the caller has locked.
void RenameReplacing(const std::string &from, const std::string &to);

} // namespace rawduck
