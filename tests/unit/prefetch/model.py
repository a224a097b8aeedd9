#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.
"""A slow, plain model of replays, by their description and nothing else.

It knows every chunk, looks at all of them each time, and computes with
fractions. There is no read-ahead.
"""

import fractions


def _us(value):
    return fractions.Fraction(value).limit_denominator(10 ** 9)


class Model:
    """One replay of a scenario, given as its JSON document."""

    def __init__(self, document, mode, in_flight=64, fan_out=2):
        self.document = document
        self.mode = mode
        self.in_flight = in_flight
        self.fan_out = fan_out
        self.instances = document['instances']
        self.count = len(self.instances)
        self.homes = document.get('homes', self.count)
        self.group = document.get('group', 1)
        self.chunks = -(-document['image_bytes'] // document['chunk'])
        self.agenda = []
        self.ports = {name: [] for name in ('wan', *range(self.count))}
        self.free = dict.fromkeys(self.ports, -1)
        self.bytes = dict.fromkeys(self.ports, 0)
        self.have = [{c for c in range(self.chunks)
                      if document['striped'] and self.home(c) == i}
                     for i in range(self.count)]
        self.asked = [{} for _ in self.instances]
        self.at_repository = set()
        self.at_home = {}
        self.queues = {}
        self.at_others = {}
        self.position = [0] * self.count
        self.missing = [set() for _ in self.instances]
        self.given = [set() for _ in self.instances]
        self.nodes = [set() for _ in self.instances]
        self.read = [set() for _ in self.instances]
        self.hints = [[] for _ in self.instances]
        self.stopped = [False] * self.count
        self.unread = [set() for _ in self.instances]
        self.boots = [None] * self.count
        self.misses = [0] * self.count
        self.prefetched = [0] * self.count
        self.used = [0] * self.count
        self.events = []
        self.counts = {c: 0 for c in range(self.chunks)}
        self.times = {c: fractions.Fraction(0) for c in range(self.chunks)}
        if mode == 'later':
            for chunk, count, mean in document['profile']:
                self.counts[chunk] = count
                self.times[chunk] = count * _us(mean)
        share = _us(document['threshold'])
        self.least = share if share >= 1 else max(1, share * self.count)
        links = document['links']
        self.half = {p: _us(links['wan_rtt_ms' if p == 'wan' else
                                  'lan_rtt_ms']) * 500 for p in self.ports}
        self.mbps = {p: _us(links['wan_mbps' if p == 'wan' else
                                  'lan_mbps']) for p in self.ports}

    def run(self):
        for i, instance in enumerate(self.instances):
            self.next_read(_us(instance['start_us']), i)
        while self.step():
            pass
        return self

    def step(self):
        """Let the earliest thing happen; a port starts after all others."""
        starts = [(max(self.free[p], min(r[0] for r in waiting)), str(p), p)
                  for p, waiting in self.ports.items() if waiting]
        due = min(self.agenda, default=None)
        if due and (not starts or due[0] <= min(starts)[0]):
            self.agenda.remove(due)
            now, _, instance, chunk, name = due
            getattr(self, name)(now, instance, chunk)
        elif starts:
            now, _, port = min(starts)
            self.send(now, port)
        return bool(due or starts)

    def later(self, time, phase, instance, chunk, name):
        self.agenda.append((time, phase, instance, chunk, name))

    def home(self, chunk):
        return chunk // self.group % self.homes

    def size(self, chunk):
        step = self.document['chunk']
        return min(step, self.document['image_bytes'] - chunk * step)

    def send(self, now, port):
        request = min(self.ports[port])
        self.ports[port].remove(request)
        _, instance, chunk = request
        receiver = self.home(chunk) if port == 'wan' else instance
        self.free[port] = now + 8 * self.size(chunk) / self.mbps[port]
        self.bytes[port] += self.size(chunk)
        self.later(self.free[port] + self.half[port], 0, receiver, chunk,
                   'arrive')

    def next_read(self, now, i):
        reads = self.instances[i]['reads']
        if self.position[i] == len(reads):
            self.boots[i] = now - _us(self.instances[i]['start_us'])
        else:
            think = _us(reads[self.position[i]][0])
            self.later(now + think, 1, i, -1, 'issue')

    def issue(self, now, i, _):
        _, offset, length = self.instances[i]['reads'][self.position[i]]
        self.position[i] += 1
        step = self.document['chunk']
        for chunk in range(offset // step, (offset + length - 1) // step + 1):
            self.access(now, i, chunk)
        if not self.missing[i]:
            self.next_read(now, i)
        self.prefetch(now, i)

    def access(self, now, i, chunk):
        there = chunk in self.have[i]
        miss = not there and self.asked[i].get(chunk) != 'prefetch'
        self.used[i] += chunk in self.unread[i]
        self.unread[i].discard(chunk)
        hints, seen = [], (0, 0, 0)
        if miss and self.mode != 'on-demand':
            hints = self.find_hints(i, chunk)
        if chunk not in self.read[i]:
            self.read[i].add(chunk)
            self.counts[chunk] += 1
            self.times[chunk] += now - _us(self.instances[i]['start_us'])
        if miss and self.mode != 'on-demand':
            seen = self.walk(i, chunk)
            self.hints[i] += [self.rank(hint) for hint in hints]
        if miss:
            self.misses[i] += 1
            self.stopped[i] = True
            if not self.is_coming(i, chunk):
                self.ask(now, i, chunk, 'demand')
        if not there:
            self.missing[i].add(chunk)
        self.events.append((now, i, chunk, miss, hints, *seen))

    def rank(self, chunk):
        count = self.counts[chunk]
        return (-count, self.times[chunk] / count, chunk)

    def find_hints(self, i, chunk):
        known = [c for c in range(self.chunks)
                 if self.counts[c] and self.counts[c] >= self.least
                 and c != chunk and c not in self.have[i]
                 and c not in self.given[i]]
        known.sort(key=self.rank)
        self.given[i].update(known, [chunk])
        return known

    def walk(self, i, chunk):
        """Count nodes: remote, cached, skipped."""
        found = [0, 0, 0]

        def visit(low, high):
            if (low, high) in self.nodes[i]:
                found[1] += 1
            else:
                found[0] += 1
                self.nodes[i].add((low, high))
            if high - low == 1:
                return
            middle = low + (high - low + 1) // 2
            for a, b in ((low, middle), (middle, high)):
                total = sum(self.counts[c] for c in range(a, b))
                if a <= chunk < b or total >= self.least:
                    visit(a, b)
                else:
                    found[2] += 2 * (b - a) - 1

        visit(0, self.chunks)
        return tuple(found)

    def is_coming(self, i, chunk):
        return chunk in self.asked[i] or (
            self.home(chunk) == i and chunk in self.at_repository)

    def prefetch(self, now, i):
        while not self.stopped[i] and self.hints[i]:
            flying = sum(why == 'prefetch' for why in self.asked[i].values())
            if flying >= self.in_flight:
                return
            hint = min(self.hints[i])
            self.hints[i].remove(hint)
            chunk = hint[2]
            if chunk not in self.have[i] and not self.is_coming(i, chunk):
                self.prefetched[i] += 1
                self.unread[i].add(chunk)
                self.ask(now, i, chunk, 'prefetch')

    def ask(self, now, i, chunk, why):
        self.asked[i][chunk] = why
        if self.home(chunk) == i:
            self.ask_repository(now, i, chunk)
        else:
            self.later(now + self.half[0], 2, i, chunk, 'reach_home')

    def ask_repository(self, now, i, chunk):
        if chunk not in self.at_repository:
            self.at_repository.add(chunk)
            self.later(now + self.half['wan'], 2, i, chunk,
                       'reach_repository')

    def reach_repository(self, now, i, chunk):
        self.ports['wan'].append((now, i, chunk))

    def reach_home(self, now, i, chunk):
        home = self.home(chunk)
        if chunk in self.have[home]:
            self.answer(now, home, i, chunk)
        else:
            self.at_home.setdefault(chunk, []).append(i)
            self.ask_repository(now, i, chunk)

    def arrive(self, now, i, chunk):
        self.have[i].add(chunk)
        self.asked[i].pop(chunk, None)
        if chunk in self.missing[i]:
            self.missing[i].remove(chunk)
            if not self.missing[i]:
                self.stopped[i] = False
                self.next_read(now, i)
        if self.home(chunk) == i:
            self.at_repository.discard(chunk)
            for other in self.at_home.pop(chunk, []):
                self.answer(now, i, other, chunk)
        else:
            for other in self.at_others.pop((i, chunk), []):
                self.ports[i].append((now, other, chunk))
        self.prefetch(now, i)

    def answer(self, now, home, i, chunk):
        """Let a home send a chunk, or refer to who asked before."""
        queue = self.queues.setdefault(chunk, [])
        queue.append(i)
        place = len(queue) - 1
        at_port = len(self.ports[home]) + (self.free[home] >= now)
        if (self.mode == 'refer' and at_port >= self.fan_out
                and place >= self.fan_out):
            other = queue[place // self.fan_out - 1]
            self.later(now + 2 * self.half[0], 4, i, (chunk, other),
                       'reach_other')
        else:
            self.ports[home].append((now, i, chunk))

    def reach_other(self, now, i, place):
        chunk, other = place
        if chunk in self.have[other]:
            self.ports[other].append((now, i, chunk))
        else:
            self.at_others.setdefault((other, chunk), []).append(i)
