/**
 * What the pages do in a browser: search, the menu of a narrow screen, light or dark, and copying of code. A page reads
 * the same without it. No modules: browsers load none from a disk.
 */
;(() => {
  const root = document.currentScript.dataset.root
  const one = (selector) => document.querySelector(selector)

  // Light or dark: what the system says, until the reader chooses.
  one('.theme').addEventListener('click', () => {
    const { dataset } = document.documentElement
    const isDark = dataset.theme ? dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
    dataset.theme = isDark ? 'light' : 'dark'
    try {
      localStorage.setItem('theme', dataset.theme)
    } catch {
      // A browser that keeps nothing: the choice is for this page.
    }
  })

  // The menu of a narrow screen.
  const menu = one('.menu')
  menu.addEventListener('click', () => {
    const isOpen = document.body.classList.toggle('with-menu')
    menu.setAttribute('aria-expanded', String(isOpen))
  })

  // The page that is read is in sight in the list of pages.
  one('.pages [aria-current]')?.scrollIntoView({ block: 'nearest' })

  for (const block of document.querySelectorAll('.code')) {
    const button = Object.assign(document.createElement('button'), { type: 'button', textContent: 'copy' })
    const copy = async () => {
      await navigator.clipboard.writeText(block.querySelector('code').textContent)
      button.textContent = 'copied'
      setTimeout(() => (button.textContent = 'copy'), 1500)
    }
    button.addEventListener('click', () => void copy())
    block.append(button)
  }

  // Which heading is being read.
  const marks = new Map([...document.querySelectorAll('.outline a')].map((link) => [link.hash.slice(1), link]))
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue
        for (const link of marks.values()) link.classList.toggle('here', link === marks.get(target.id))
      }
    },
    { rootMargin: '-60px 0px -70% 0px' },
  )
  for (const heading of document.querySelectorAll('h2[id], h3[id]')) if (marks.has(heading.id)) seen.observe(heading)

  const dialog = one('.find')
  const input = dialog.querySelector('input')
  const results = dialog.querySelector('ol')
  let index

  const load = (file) =>
    new Promise((resolve, reject) => {
      const script = Object.assign(document.createElement('script'), { src: `${root}assets/${file}` })
      script.addEventListener('load', resolve)
      script.addEventListener('error', () => reject(new Error(`${file} was not loaded`)))
      document.head.append(script)
    })

  async function makeIndex() {
    await Promise.all([load('minisearch.js'), load('search.js')])
    const made = new window.MiniSearch({
      fields: ['heading', 'page', 'body'],
      storeFields: ['heading', 'page', 'body', 'url', 'weight'],
      searchOptions: {
        boost: { heading: 4, page: 3 },
        boostDocument: (_id, _term, { weight }) => weight,
        prefix: (term) => term.length > 2,
        fuzzy: (term) => (term.length > 5 ? 0.15 : 0),
        weights: { prefix: 0.3, fuzzy: 0.1 },
      },
    })
    made.addAll(window.holdfastSections)
    return made
  }

  async function open() {
    if (!dialog.open) dialog.showModal()
    input.select()
    index ??= makeIndex()
    await show()
  }

  async function show() {
    const asked = input.value.trim()
    const made = await index
    const found = asked === '' ? [] : made.search(asked, { combineWith: 'AND' })
    const some = found.length > 0 || asked === '' ? found : made.search(asked)
    if (asked !== input.value.trim()) return
    results.replaceChildren(...some.slice(0, 12).map(resultItem))
    results.firstElementChild?.classList.add('chosen')
    one('.hint').textContent =
      asked !== '' && some.length === 0 ? `Nothing has “${asked}” in it.` : 'Arrows choose, Enter opens, Escape closes.'
  }

  function resultItem({ heading, page, body, url, terms }) {
    const link = Object.assign(document.createElement('a'), { href: root + url })
    const title = Object.assign(document.createElement('b'), { textContent: heading || page })
    const where = Object.assign(document.createElement('small'), { textContent: heading ? page : '' })
    const text = document.createElement('p')
    text.append(...excerpt(body, terms))
    link.append(title, where, text)
    link.addEventListener('click', () => dialog.close())
    const item = document.createElement('li')
    item.append(link)
    return item
  }

  /** The text around the first word that was found, with all that were found marked. */
  function excerpt(body, terms) {
    const words = terms.map((term) => term.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&'))
    const pattern = new RegExp(`(${words.join('|')})`, 'gi')
    const at = Math.max(0, body.search(pattern) - 60)
    const piece = (at > 0 ? '… ' : '') + body.slice(at, at + 200) + (at + 200 < body.length ? ' …' : '')
    return piece.split(pattern).map((part, position) => {
      if (position % 2 === 0) return part
      return Object.assign(document.createElement('mark'), { textContent: part })
    })
  }

  function choose(step) {
    const items = [...results.children]
    const at = items.findIndex((item) => item.classList.contains('chosen'))
    const next = items[(at + step + items.length) % items.length]
    items[at]?.classList.remove('chosen')
    next?.classList.add('chosen')
    next?.scrollIntoView({ block: 'nearest' })
  }

  one('.search').addEventListener('click', () => void open())
  input.addEventListener('input', () => void show())
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close()
  })
  dialog.querySelector('form').addEventListener('submit', (event) => {
    event.preventDefault()
    results.querySelector('.chosen a')?.click()
  })
  document.addEventListener('keydown', (event) => {
    const isTyping = /^(?:INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? '')
    if ((event.key === '/' && !isTyping) || (event.key === 'k' && (event.ctrlKey || event.metaKey))) {
      event.preventDefault()
      void open()
    } else if (dialog.open && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
      event.preventDefault()
      choose(event.key === 'ArrowDown' ? 1 : -1)
    }
  })
})()
