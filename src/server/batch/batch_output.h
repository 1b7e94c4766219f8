// Ends a batch: its output and error files, from its lines, in the order of the input.
#pragma once

#include "base/status.h"
#include "server/store/store.h"

namespace skein {

// `batch` is finalizing or cancelling. Waits for the store and writes files, so call it
// neither on the store's thread nor on an I/O thread. When it fails, or the process dies in it,
// nothing has happened and it can be called again: the files' rows and the final status are one
// transaction.
//
// A line with a 2xx result goes to the output file, any other to the error file; one that never ran
// goes to the error file of an expired batch and to neither of a cancelled one. A file that would
// be empty is not made.
Status finalize_batch(Store& store, const OpenBatch& batch);

}  // namespace skein
