/* Linked to tests that are not run with ThreadSanitizer, because they start no thread
 * (--wrap=pthread_create): one that does fails. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
			  void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
			  void *argument)
{
	fputs("a test of the suite serial starts a thread: in the suite unit ThreadSanitizer looks at it\n",
	      stderr);
	abort();
}
