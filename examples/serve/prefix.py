"""Pages of a pool, and the prefixes of prompts that they hold.

Sequences whose prompts begin with the same whole pages share them. A page is counted by the sequences that use it. One
that no sequence uses any more keeps its prefix until another sequence needs the page: the least recently used goes
first.
"""

import collections


class Pages:
    def __init__(self, count, size):
        self.count, self.size = count, size
        self._empty = list(range(count))
        self._uses = [0] * count
        self._page_of = {}  # the tokens from the beginning of a text to the end of a page: the page
        self._prefix_of = {}  # the inverse
        self._kept = collections.OrderedDict()  # pages without uses that have a prefix, the least recently used first

    @property
    def free(self):
        """The pages that no sequence uses."""
        return len(self._empty) + len(self._kept)

    @property
    def kept(self):
        """Those of them that have a prefix."""
        return len(self._kept)

    @property
    def shared(self):
        """The pages that several sequences use."""
        return sum(uses > 1 for uses in self._uses)

    def needed(self, positions):
        """The number of pages of a sequence with `positions` positions."""
        return -(-positions // self.size)

    def open(self, prompt, positions):
        """The pages of a new sequence, and how many of the first are shared and have their tokens. None if too few are
        free. A sequence never shares the last token of its prompt, whose logits it needs."""
        shared = []
        for end in range(self.size, len(prompt), self.size):
            page = self._page_of.get(prompt[:end])
            if page is None:
                break
            shared.append(page)
        new = self.needed(positions) - len(shared)
        if new > self.free - sum(page in self._kept for page in shared):
            return None
        for page in shared:
            self._uses[page] += 1
            self._kept.pop(page, None)
        return shared + [self._take() for _ in range(new)], len(shared)

    def _take(self):
        if self._empty:
            page = self._empty.pop()
        else:
            page, _ = self._kept.popitem(last=False)
            del self._page_of[self._prefix_of.pop(page)]
        self._uses[page] = 1
        return page

    def publish(self, prefix, page):
        """The page has the last tokens of this prefix, which ends with the page. If another one already has, it stays
        the one that is shared."""
        if prefix not in self._page_of:
            self._page_of[prefix], self._prefix_of[page] = page, prefix

    def close(self, pages):
        """A sequence no longer uses its pages."""
        for page in reversed(pages):  # so that the end of a prefix is replaced before its beginning
            self._uses[page] -= 1
            if self._uses[page] == 0:
                if page in self._prefix_of:
                    self._kept[page] = None
                else:
                    self._empty.append(page)
