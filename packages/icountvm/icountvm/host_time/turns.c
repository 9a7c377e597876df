// SPDX-License-Identifier: MIT
//
// The time of day (host_time.c), and turns, for a QEMU with several processors.
//
// QEMU's processors share a thread. At each timer it wakes the main loop, which runs beside it and
// moves the clock on if every processor is halted (icount_start_warp_timer in
// accel/tcg/icount-common.c). It may see a processor halt before its last instructions are counted.
// QEMU can record one processor, which prevents that, but not several.
//
// So the main loop's events wait here until the processors' thread waits, or is woken by the main
// loop itself. They do what they would have done if the main loop had been slow. QEMU's monitor
// must be answered while processors never halt: the main loop goes on after a second.

#include "host_time.c"

#define NEXT ((void *)-1L)
#define SECONDS 1
#define SYS_getpid 39
#define SYS_gettid 186
#define SYS_futex 202
#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129
#define ETIMEDOUT 110

void *dlsym(void *handle, const char *name);

// Whether the processors' thread waits, and for which condition.
static int waits;
static void *condition;

static long call(long number, long first, long second, long third, long fourth)
{
	long result;

	__asm__ volatile("movq %5, %%r10; syscall"
			 : "=a"(result)
			 : "a"(number), "D"(first), "S"(second), "d"(third), "g"(fourth)
			 : "rcx", "r10", "r11", "memory");
	return result;
}

static int is_main_thread(void)
{
	return call(SYS_gettid, 0, 0, 0, 0) == call(SYS_getpid, 0, 0, 0, 0);
}

static void set_waits(int value)
{
	__asm__ volatile("xchgl %0, %1" : "+r"(value), "+m"(waits) : : "memory");
}

// Of all threads but the main one, only that of the processors waits so.
int pthread_cond_wait(void *on, void *mutex)
{
	static int (*next)(void *, void *);
	int other = !is_main_thread(), result;

	if (!next)
		next = dlsym(NEXT, "pthread_cond_wait");
	if (other) {
		condition = on;
		set_waits(1);
		call(SYS_futex, (long)&waits, FUTEX_WAKE_PRIVATE, 1, 0);
	}
	result = next(on, mutex);
	if (other)
		set_waits(0);
	return result;
}

int pthread_cond_broadcast(void *of)
{
	static int (*next)(void *);

	if (!next)
		next = dlsym(NEXT, "pthread_cond_broadcast");
	// It runs from now on, not from when it holds its mutex.
	if (of == condition)
		set_waits(0);
	return next(of);
}

// With a limit of 0 the main loop has work of its own, and keeps the lock that processors need.
int ppoll(void *files, unsigned long number, const long *limit, const void *signals)
{
	static int (*next)(void *, unsigned long, const long *, const void *);
	long second[2] = {SECONDS, 0};
	int keeps = limit && !limit[0] && !limit[1], result;

	if (!next)
		next = dlsym(NEXT, "ppoll");
	result = next(files, number, limit, signals);
	// There is no condition before there are processors.
	while (!*(volatile int *)&waits && condition && !keeps && is_main_thread())
		if (call(SYS_futex, (long)&waits, FUTEX_WAIT_PRIVATE, 0, (long)second) == -ETIMEDOUT)
			break;
	return result;
}
