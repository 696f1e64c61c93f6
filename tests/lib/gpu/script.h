/* What a stand-in for a library is told by its environment, so that one test can play any machine. */
#ifndef TIERD_TESTS_LIB_GPU_SCRIPT_H
#define TIERD_TESTS_LIB_GPU_SCRIPT_H

/* Of a call of the library; what it is made of stays inside. */
#define API __attribute__((visibility("default")))

/* $STANDIN_FAILURES: "cuInit=999,cuDeviceGet=101": the error of that call; 0: it succeeds. */
int script_error(const char *call);

/* $NAME as a number, or else that. */
int script_number(const char *name, int otherwise);

#endif
