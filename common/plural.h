/* What follows a word that is counted: "1 rank", "2 ranks". */
#ifndef TIERD_COMMON_PLURAL_H
#define TIERD_COMMON_PLURAL_H

#define PLURAL(count) ((count) == 1 ? "" : "s")

#endif
