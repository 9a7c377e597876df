// SPDX-License-Identifier: MIT
//
// The time of day for a QEMU that counts instructions: 0.1 ms more at each call of a thread.
//
// QEMU asks the host for it when it flushes its software TLB, and resizes that by how much it was
// used in the last 100 ms (tlb_mmu_resize_locked in accel/tcg/cputlb.c). A kernel sees the size: a
// page whose translation stayed in the TLB is not marked as accessed again.
//
// Every thread has a time of its own. Only the thread of the processors flushes, always after the
// same instructions; when the others ask depends on the host.

#define MOST_THREADS 256

struct timeval {
	long seconds;
	long microseconds;
};

static struct {
	void *thread;
	long calls;
} asked[MOST_THREADS];

// Each thread has its own address for errno.
void *__errno_location(void);

// Put `thread` where nothing is, and return what was there.
static void *put(void **place, void *thread)
{
	void *was = 0;

	__asm__ volatile("lock cmpxchgq %2, %1" : "+a"(was), "+m"(*place) : "r"(thread) : "memory");
	return was;
}

static long next_call(void)
{
	void *thread = __errno_location();
	int i;

	for (i = 0; i < MOST_THREADS - 1; i++) {
		void *was = put(&asked[i].thread, thread);

		if (!was || was == thread)
			break;
	}
	return ++asked[i].calls;
}

int gettimeofday(struct timeval *now, void *zone)
{
	long calls = next_call();

	(void)zone;
	now->seconds = 1767225600 + calls / 10000;
	now->microseconds = calls % 10000 * 100;
	return 0;
}
